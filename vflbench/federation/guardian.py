"""A guardian ends the servers of a process with that process, even where it is killed."""

import subprocess

# `read` fails when the process that started the guardian dies: that closes the pipe.
# Ends the last process that it was given, and all that have files below the folder open; removes the folder.
USERS = """
trap '' TERM
while read -r line; do pid=$line; done
for signal in TERM TERM TERM KILL KILL; do
  pids="$pid $(find /proc/[0-9]*/fd -lname "$1/*" 2>/dev/null | cut -d/ -f3 | sort -u)"
  kill -$signal $pids 2>/dev/null
  pid=
  rm -rf "$1"
  sleep 1
done
"""
# Sends SIGTERM to all processes that have these words in their environment.
MARKED = """
trap '' TERM
read -r _
for place in /proc/[0-9]*; do
  grep -qsF "$1" "$place/environ" && kill "${place#/proc/}"
done
"""


class Guardian:
    """A shell that waits for the death of this process, and then runs `program` on `what`."""

    def __init__(self, program: str, what: str) -> None:
        nowhere = subprocess.DEVNULL
        self.process = subprocess.Popen(
            ["sh", "-c", program, "sh", what],
            stdin=subprocess.PIPE,
            stdout=nowhere,
            stderr=nowhere,
            start_new_session=True,  # it outlives a signal to the whole process group
        )

    def watch(self, pid: int) -> None:
        """End this process too, in place of an earlier one."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{pid}\n".encode())
        self.process.stdin.flush()

    def dismiss(self) -> None:
        """End the guardian: there is nothing to guard any more."""
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
