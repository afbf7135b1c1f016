"""The ready line can be pasted into a shell and into Python."""

import ast
import json
import shlex

from deployments.announce import ready_line

URL = "http://127.0.0.1:8000"


def test_the_command_sends_a_chat_to_this_server() -> None:
    line = ready_line(URL, "my-model")
    assert "\n" not in line
    command = line[line.index("curl ") : line.index("   or in Python:")]
    program, url, *options = shlex.split(command)
    assert (program, url) == ("curl", f"{URL}/v1/chat/completions")
    assert json.loads(options[options.index("-d") + 1])["model"] == "my-model"


def test_the_program_is_python() -> None:
    program = ready_line(URL, "my-model").split("or in Python:")[1].strip()
    ast.parse(program)
    assert f'base_url="{URL}/v1"' in program
    assert 'model="my-model"' in program
