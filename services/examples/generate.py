"""A client in Python: streams the answer to a chat and says which field was wrong.

    pip install grpcio grpcio-tools grpcio-status
    python -m grpc_tools.protoc -I proto --python_out=OUT --grpc_python_out=OUT proto/tandem/v1/generation.proto
    PYTHONPATH=OUT python services/examples/generate.py SERVER PROMPT [TEMPERATURE]

The channel's service config (proto/tandem/v1/service_config.json) spreads calls over all addresses
of SERVER that say SERVING, and tries a call that found no worker again, as long as nothing of its
answer has come.
"""

import pathlib
import sys

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tandem.v1 import generation_pb2, generation_pb2_grpc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


def print_details(error: grpc.RpcError) -> None:
    """What the server said beyond the message."""
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(bad):
            for violation in bad.field_violations:
                print(f"  field: {violation.field}", file=sys.stderr)
        elif detail.Unpack(retry):
            print(f"  try again after {retry.retry_delay.seconds} s", file=sys.stderr)


def main() -> int:
    if not 3 <= len(sys.argv) <= 4:
        print("usage: generate.py SERVER PROMPT [TEMPERATURE]", file=sys.stderr)
        return 2
    service_config = (PROTO / "tandem/v1/service_config.json").read_text()
    options = [("grpc.service_config", service_config)]
    request = generation_pb2.GenerateRequest(max_tokens=64)
    request.chat.messages.add(role="user", content=sys.argv[2])
    if len(sys.argv) == 4:
        request.sampling.temperature = float(sys.argv[3])
    with grpc.insecure_channel(sys.argv[1], options=options) as channel:
        call = generation_pb2_grpc.GenerationStub(channel).Generate(request, timeout=60)
        try:
            for response in call:  # to end it early: call.cancel()
                event = response.WhichOneof("event")
                if event == "started":
                    print(f"seed {response.started.seed}", file=sys.stderr)
                elif event == "delta":
                    print(response.delta.text, end="", flush=True)
                elif event == "finished":
                    reason = generation_pb2.FinishReason.Name(response.finished.reason)
                    tokens = response.finished.usage.output_tokens
                    print(flush=True)
                    print(f"{reason}, {tokens} tokens", file=sys.stderr)
        except grpc.RpcError as error:
            print(f"error {error.code().value[0]}: {error.details()}", file=sys.stderr)
            print_details(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
