# Runs before serve.py of tools/moto: writes each request to the server, with its answer, as a
# line of JSON to the file RECORD. moto has AWS's own models of its services (botocore), so a
# line has the operation and its parameters, not bytes.
import io
import json
import os
import threading

from botocore.parsers import create_parser
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request as MotoRequest, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

# The models of services whose name is not the one in the signature.
MODELS = {"elasticloadbalancing": "elbv2", "monitoring": "cloudwatch", "states": "stepfunctions", "elasticfilesystem": "efs"}

answer_request = DomainDispatcherApplication.__call__
file = open(os.environ["RECORD"], "a", encoding="utf-8")
lock = threading.Lock()
with open(os.environ["RECORD"] + ".read-only", "w", encoding="utf-8") as f:
    json.dump(json.loads(aws_managed_policies_data)["ReadOnlyAccess"], f)


def described(environ, body, status, headers, answer):
    """Returns the operation, its parameters and its output."""
    scope = environ.get("HTTP_AUTHORIZATION", "").split("Credential=")[-1].split(",")[0].split("/")
    if len(scope) < 5:
        return None  # a request without a signature asks no service of AWS
    signed = scope[3]
    model_name = "s3control" if "s3-control" in environ.get("HTTP_HOST", "") else MODELS.get(signed, signed)
    request = MotoRequest({**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))})
    request.get_data(parse_form_data=True, cache=True)
    model = get_service_model(model_name)
    operation, variables = get_service_router(model.service_name).match(request)
    parser = PROTOCOL_PARSERS[determine_request_protocol(model, request.content_type)](operation)
    params = parser.parse({"method": request.method, "values": request.values, "headers": request.headers, "body": body,
                           "url_path": request.path, "url_params": variables})
    output = {}
    if status < 300 and operation.output_shape is not None:
        output = create_parser(model.protocol).parse({"status_code": status, "headers": headers, "body": answer}, operation.output_shape)
        output.pop("ResponseMetadata", None)
    return {"service": signed, "operation": operation.name, "params": params, "output": output}


def recorded(self, environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    seen = {}

    def start(status, headers, *more):
        seen["status"], seen["headers"] = int(status.split()[0]), dict(headers)
        return start_response(status, headers, *more)

    try:
        answer = b"".join(answer_request(self, environ, start))
    except Exception as e:  # moto does not play the operation; the recording needs the request all the same
        answer = repr(e).encode()
        start("501 Not Implemented", [("Content-Type", "text/plain")])
    try:
        line = described(environ, body, seen["status"], {k.lower(): v for k, v in seen["headers"].items()}, answer)
    except Exception as e:  # the recorder reports it; the client gets the server's answer
        line = {"error": f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {environ.get('HTTP_X_AMZ_TARGET', '')} {type(e).__name__}: {e}"}
    if line is not None:
        line["status"] = seen["status"]
        with lock:
            file.write(json.dumps(line, default=lambda v: v.read().decode("latin-1") if hasattr(v, "read") else v.decode("latin-1") if isinstance(v, bytes) else str(v)) + "\n")
            file.flush()
    return [answer]


DomainDispatcherApplication.__call__ = recorded
