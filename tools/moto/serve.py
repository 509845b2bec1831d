# Starts moto's server with three gaps of its SQS mended, each a difference from AWS
# that a plan takes for a change somebody made:
# - RedriveAllowPolicy can be set, and is not told;
# - setting another attribute removes the queue's policy;
# - RedrivePolicy comes back with other white space than it was set with.
import json
import sys

from moto.server import main
from moto.sqs.models import Queue

Queue.BASE_ATTRIBUTES.append("RedriveAllowPolicy")
Queue.redrive_allow_policy = None

set_attributes = Queue._set_attributes
attributes = Queue.attributes.fget


def set_and_keep_policy(self, given, now=None):
    set_attributes(self, {"Policy": getattr(self, "policy", None), **given}, now)


def compact(self):
    told = attributes(self)
    if self.redrive_policy:
        told["RedrivePolicy"] = json.dumps(self.redrive_policy, separators=(",", ":"))
    return told


Queue._set_attributes = set_and_keep_policy
Queue.attributes = property(compact)

sys.exit(main(sys.argv[1:]))
