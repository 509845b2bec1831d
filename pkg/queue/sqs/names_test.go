package sqs

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/queue"
)

func TestSQSNamesAreValidAndUnique(t *testing.T) {
	prefix := strings.Repeat("p", maxPrefix)
	seen := map[string]string{}
	for _, name := range []string{
		"q", "q-dead", "q-q", "q-h", "q-hq", "dead", "-dead", "-", "runner-run_01",
		strings.Repeat("a", 80), strings.Repeat("a", 79) + "b", strings.Repeat("a", 79),
	} {
		for _, pre := range []string{"", prefix} {
			live, dead := names(pre, name)
			for _, n := range []string{live, dead} {
				if err := queue.CheckName(n); err != nil || !strings.HasPrefix(n, pre) {
					t.Errorf("queue %s has the name %s in SQS, which is invalid: %v", name, n, err)
				}
				if other, taken := seen[n]; taken {
					t.Errorf("queues %s and %s both have the name %s", name, other, n)
				}
				seen[n] = name
			}
		}
	}
}

func TestEveryBodyIsDecodedUnchanged(t *testing.T) {
	for _, body := range []string{"{}", "base64:", "base64:AAAA", "base64", "\r\n", "\x00", "\xff", "\ufffe", "\ufffd", "ä\t\n", "\x7f"} {
		if got := decode(encode([]byte(body))); string(got) != body {
			t.Errorf("%q was decoded as %q", body, got)
		}
	}
	if got := encode([]byte(`{"job":"job_1"}`)); got != `{"job":"job_1"}` {
		t.Errorf("the encoded body %q is not readable", got)
	}
	for _, foreign := range []string{"base64:?", "base64:A", "hello"} { // decode does not change an invalid body from another sender
		if got := decode(foreign); string(got) != foreign {
			t.Errorf("%q was decoded as %q", foreign, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		if got := decode(encode(body)); !bytes.Equal(got, body) {
			t.Errorf("%q was decoded as %q", body, got)
		}
	})
}

func TestReceiptBelongsToOneQueue(t *testing.T) {
	h := handle{message: "5e3b", value: "AQEB.wJn+/=#"}
	r := h.receipt("q")
	if got, err := readReceipt("q", r); err != nil || got != h {
		t.Errorf("read %+v, %v", got, err)
	}
	for name, receipt := range map[string]string{
		"other": r, "q": r + "0", "Q": r, "q2": "", "q3": ".", "q4": "..", "q5": h.value,
	} {
		if _, err := readReceipt(name, receipt); !errors.Is(err, queue.ErrReceipt) {
			t.Errorf("queue %s accepts the receipt %q: %v", name, receipt, err)
		}
	}
}
