"""OpenAI's request, response and error shapes."""
