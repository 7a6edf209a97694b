"""A worker in the process of the tests: requests and replies cross as JSON, tensors as bytes, as usual."""

from types import SimpleNamespace

from harness import messages
from harness.runner import Runner
from harness.shared_memory import SharedMemory
from harness.worker import SubmissionFailed, sealed_memory


class LocalWorker:
    """Asks a Runner for the calls of a kernel. `asked` has the requests."""

    def __init__(self, kernel):
        self.memory = SharedMemory(sealed_memory())
        self.runner = Runner(lambda: SimpleNamespace(custom_kernel=kernel), SharedMemory(self.memory.fd))
        self.asked = []

    def __del__(self):
        self.memory.close()

    def ask(self, request, reply, meanwhile=None):
        self.asked.append(request)
        message = messages.encode(messages.NumberedRequest(1, request))[messages.LENGTH.size :]
        answer = self.runner.answer(messages.REQUESTS.decode(message).body)
        if meanwhile:
            meanwhile()
        text = messages.encode(messages.NumberedReply(1, answer))[messages.LENGTH.size :]
        answer = messages.decode_reply(text, 1, reply, messages.Failed)
        if isinstance(answer, messages.Failed):
            raise SubmissionFailed(answer)
        return answer
