"""Load tests over HTTP; imports neither dcoco_core nor deployments."""
