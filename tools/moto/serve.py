# Starts moto's server with four gaps mended, each a difference from AWS that a plan
# takes for a change somebody made:
# - a queue's RedriveAllowPolicy can be set, and is not told;
# - setting another attribute of a queue removes its policy;
# - a queue's RedrivePolicy comes back with other white space than it was set with;
# - the tags that a bucket is made with are lost.
# And each path of an event is parsed once: moto makes the parser's tables anew for
# each of nine paths of each event, which is seconds of work for a batch.
import functools
import json
import sys

import jsonpath_ng.ext
import xmltodict
from moto.s3.responses import S3Response
from moto.server import main
from moto.sqs.models import Queue

Queue.BASE_ATTRIBUTES.append("RedriveAllowPolicy")
Queue.redrive_allow_policy = None

set_attributes = Queue._set_attributes
attributes = Queue.attributes.fget


def set_and_keep_policy(self, given, now=None):
    set_attributes(self, {"Policy": getattr(self, "policy", None), **given}, now)


def as_set(self):
    told = attributes(self)
    told["RedriveAllowPolicy"] = self.redrive_allow_policy or None
    if self.redrive_policy:
        told["RedrivePolicy"] = json.dumps(self.redrive_policy, separators=(",", ":"))
    return told


put_bucket = S3Response._bucket_response_put


def put_bucket_with_tags(self, request, bucket_name, querystring):
    answer = put_bucket(self, request, bucket_name, querystring)
    if not querystring and self.body:
        made = xmltodict.parse(self.body, force_list={"Tag": True})
        tags = (made.get("CreateBucketConfiguration", {}).get("Tags") or {}).get("Tag", [])
        if tags:
            self.backend.put_bucket_tagging(bucket_name, {t["Key"]: t["Value"] or "" for t in tags})
    return answer


jsonpath_ng.ext.parse = functools.cache(jsonpath_ng.ext.parse)
S3Response._bucket_response_put = put_bucket_with_tags
Queue._set_attributes = set_and_keep_policy
Queue.attributes = property(as_set)

sys.exit(main(sys.argv[1:]))
