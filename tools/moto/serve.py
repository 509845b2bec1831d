# Starts moto's server and fixes six of its bugs. A plan would show each of the first four as drift:
# - moto accepts a queue's RedriveAllowPolicy but does not return it;
# - setting another attribute of a queue removes its policy;
# - moto returns a queue's RedrivePolicy with other white space than the client set;
# - moto loses the tags in a request to create a bucket;
# - the id of a multi-Region key has more characters than the id in a ciphertext, which is cut, so no such key can decrypt;
# - moto replicates no key that is named by its ARN.
# It also caches parsed JSON paths: moto builds the parser's tables again for each of
# nine paths of each event, which takes seconds for a batch.
import functools
import json
import sys
import uuid

import jsonpath_ng.ext
import moto.kms.models
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


def attributes_as_set(self):
    result = attributes(self)
    result["RedriveAllowPolicy"] = self.redrive_allow_policy or None
    if self.redrive_policy:
        result["RedrivePolicy"] = json.dumps(self.redrive_policy, separators=(",", ":"))
    return result


put_bucket = S3Response._bucket_response_put


def put_bucket_with_tags(self, request, bucket_name, querystring):
    answer = put_bucket(self, request, bucket_name, querystring)
    if not querystring and self.body:
        parsed = xmltodict.parse(self.body, force_list={"Tag": True})
        tags = (parsed.get("CreateBucketConfiguration", {}).get("Tags") or {}).get("Tag", [])
        if tags:
            self.backend.put_bucket_tagging(bucket_name, {t["Key"]: t["Value"] or "" for t in tags})
    return answer


def key_id(multi_region=False):
    return "mrk-" + uuid.uuid4().hex if multi_region else str(uuid.uuid4())


replicate = moto.kms.models.KmsBackend.replicate_key


def replicate_by_arn(self, key, region):
    return replicate(self, self.get_key_id(key), region)


moto.kms.models.generate_key_id = key_id
moto.kms.models.KmsBackend.replicate_key = replicate_by_arn
jsonpath_ng.ext.parse = functools.cache(jsonpath_ng.ext.parse)
S3Response._bucket_response_put = put_bucket_with_tags
Queue._set_attributes = set_and_keep_policy
Queue.attributes = property(attributes_as_set)

sys.exit(main(sys.argv[1:]))
