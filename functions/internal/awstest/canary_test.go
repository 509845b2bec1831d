package awstest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/test/canary"
)

// password is the sensitive input of examples/shop/demo.inputs.yaml. It is also in a sensitive output, in states and in saved plans.
const password = "correct-horse-battery-staple"

// requests keeps what reaches services of the control plane's account.
type requests struct {
	mu    sync.Mutex
	known map[string][][]byte // by place
}

// recordRequests records the requests to the table, the queues, the bus and the logs, also those of the runner and of its steps, until
// the faults of a gate are set.
func (w *world) recordRequests() *requests {
	r := &requests{known: map[string][][]byte{}}
	for service, place := range map[string]string{"DYNAMODB": "table", "SQS": "queues", "EVENTBRIDGE": "events", "CLOUDWATCH_LOGS": "logs"} {
		w.gates[service].set(func(_ *http.Request, body []byte) fault {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.known[place] = append(r.known[place], bytes.Clone(body))
			return none
		})
	}
	return r
}

// wantCanaries searches the requests, and each version of each object in the buckets of the control plane. It also opens what a data
// key of the control plane opens. want has the places of each canary, by its text, with "(opened)" after a place that only a key shows.
func (w *world) wantCanaries(r *requests, want map[string]string) {
	w.t.Helper()
	key := w.ref("SealKey")
	client := kms.NewFromConfig(w.account.config("KMS"))
	unwrap := func(wrapped []byte) ([]byte, bool) {
		out, err := client.Decrypt(w.t.Context(), &kms.DecryptInput{CiphertextBlob: wrapped, KeyId: &key, EncryptionContext: map[string]string{"fairlead": "seal"}})
		if err != nil {
			return nil, false
		}
		return out.Plaintext, true
	}
	texts := map[string]string{}
	for text := range want {
		texts[text] = text
	}
	search := canary.New(texts, canary.KMS(w.t, key, unwrap, 1<<20))
	r.mu.Lock()
	known := maps.Clone(r.known)
	r.mu.Unlock()
	w.readBuckets(func(bucket string, content []byte) {
		place := "blobs"
		if bucket == "LogArchive" {
			place = "archives"
		}
		known[place] = append(known[place], content)
	})
	places := map[string]map[string]bool{} // by canary
	for place, contents := range known {
		for _, content := range contents {
			for text, find := range search.In(content) {
				at := place
				if !find.Clear {
					at += " (opened)"
				}
				if places[text] == nil {
					places[text] = map[string]bool{}
				}
				places[text][at] = true
			}
		}
	}
	for text, at := range want {
		if got := strings.Join(slices.Sorted(maps.Keys(places[text])), ", "); got != at {
			w.t.Errorf("%q is in %q, want %q", text, got, at)
		}
	}
}

// readBuckets reads each version of each object in the buckets of the control plane, by the logical name of the bucket.
func (w *world) readBuckets(read func(bucket string, content []byte)) {
	w.t.Helper()
	client := s3.NewFromConfig(w.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	for _, id := range w.tmpl.ofType("AWS::S3::Bucket") {
		bucket := w.ref(id)
		pages := s3.NewListObjectVersionsPaginator(client, &s3.ListObjectVersionsInput{Bucket: &bucket})
		for pages.HasMorePages() {
			page, err := pages.NextPage(w.t.Context())
			w.ok("list bucket "+bucket, err)
			for _, v := range page.Versions {
				out, err := client.GetObject(w.t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: v.Key, VersionId: v.VersionId})
				w.ok(fmt.Sprintf("read %s of bucket %s", *v.Key, bucket), err)
				content, err := io.ReadAll(out.Body)
				out.Body.Close()
				w.ok(fmt.Sprintf("read %s of bucket %s", *v.Key, bucket), err)
				read(id, content)
			}
		}
	}
}
