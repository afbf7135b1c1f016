"""Ray Serve deployments: thin shells around dcoco_core."""
