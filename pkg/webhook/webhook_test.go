package webhook_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/webhook"
)

// The example is from the Standard Webhooks specification and its libraries.
func TestSignatureMatchesSpecification(t *testing.T) {
	secret, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	m := webhook.Message{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Body: []byte(`{"test": 2432232314}`)}
	keys := webhook.Keys{Secret: secret}
	if got, want := webhook.Sign([]webhook.Keys{keys}, m, time.Unix(1614265330, 0)), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	if got := keys.FormatSecret(); got != "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" {
		t.Errorf("FormatSecret returns %s", got)
	}
}

// An endpoint that has only the public key verifies the signature v1a, also beside the signatures of other keys.
func TestPublicKeyVerifiesAMessage(t *testing.T) {
	newest, earlier := webhook.NewKeys(), webhook.NewKeys()
	m, at := webhook.Message{ID: "evt_1", Body: []byte(`{"n":1}`)}, time.Unix(1614265330, 0)
	signatures := strings.Fields(webhook.Sign([]webhook.Keys{newest, earlier}, m, at))
	if len(signatures) != 4 {
		t.Fatalf("the message has the signatures %q", signatures)
	}
	for n, k := range []webhook.Keys{newest, earlier} {
		public, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(k.FormatPublic(), "whpk_"))
		if err != nil {
			t.Fatal(err)
		}
		signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signatures[2*n+1], "v1a,"))
		if err != nil {
			t.Fatal(err)
		}
		for what, want := range map[string]bool{`evt_1.1614265330.{"n":1}`: true, `evt_1.1614265330.{"n":2}`: false, `evt_1.1614265331.{"n":1}`: false, `evt_2.1614265330.{"n":1}`: false} {
			if ed25519.Verify(public, []byte(what), signature) != want {
				t.Errorf("pair %d: the signature is valid for %s: want %v", n, what, want)
			}
		}
	}
}

// Sealed keys of an earlier release are a secret alone. What is neither is an error.
func TestKeysAreReadInBothForms(t *testing.T) {
	k := webhook.NewKeys()
	got, err := webhook.DecodeKeys(k.Encode())
	if err != nil || got.FormatSecret() != k.FormatSecret() || got.FormatPublic() != k.FormatPublic() {
		t.Errorf("%s %s, %v", got.FormatSecret(), got.FormatPublic(), err)
	}
	old, err := webhook.DecodeKeys(k.Secret)
	if err != nil || old.FormatSecret() != k.FormatSecret() || old.FormatPublic() != "" || string(old.Encode()) != string(k.Secret) {
		t.Errorf("a secret alone: %s %q, %v", old.FormatSecret(), old.FormatPublic(), err)
	}
	for _, n := range []int{0, 31, 33, 63, 65} {
		if _, err := webhook.DecodeKeys(make([]byte, n)); err == nil {
			t.Errorf("%d bytes are accepted", n)
		}
	}
}

var event = events.Domain{V: 1, Type: "fairlead.job.failed", Org: "acme", Subject: "job_1", Version: 7,
	Time: time.Date(2026, 11, 21, 3, 4, 5, 678e6, time.UTC), Data: map[string]string{"reason": "tool-failed", "version": "replaced"}}

func TestEncodeReturnsCloudEvent(t *testing.T) {
	m, err := webhook.Encode(event)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(m.Body, &got); err != nil {
		t.Fatal(err)
	}
	data, _ := got["data"].(map[string]any)
	for name, want := range map[string]any{"specversion": "1.0", "id": m.ID, "source": "urn:fairlead:org:acme", "type": "fairlead.job.failed", "subject": "job_1",
		"time": "2026-11-21T03:04:05.678Z", "datacontenttype": "application/json"} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if data["version"] != 7.0 || data["reason"] != "tool-failed" {
		t.Errorf("data is %v", data)
	}
}

// A repeated event has the same identifier, another event a different one, and a later event a greater one.
func TestIDDependsOnEventAndTime(t *testing.T) {
	id := webhook.ID(event)
	if !strings.HasPrefix(id, "evt_") || len(id) != 30 || webhook.ID(event) != id {
		t.Errorf("the identifier is %s, and the second time %s", id, webhook.ID(event))
	}
	for name, change := range map[string]func(*events.Domain){
		"type":    func(e *events.Domain) { e.Type = "fairlead.job.lost" },
		"subject": func(e *events.Domain) { e.Subject = "job_2" },
		"version": func(e *events.Domain) { e.Version++ },
	} {
		e := event
		change(&e)
		if webhook.ID(e) == id {
			t.Errorf("an event with another %s has the same identifier", name)
		}
	}
	e := event
	e.Time = e.Time.Add(time.Millisecond)
	if webhook.ID(e) <= id {
		t.Errorf("the later event's identifier %s sorts before %s", webhook.ID(e), id)
	}
}

func TestFiltersSelectEventTypes(t *testing.T) {
	for pattern, selects := range map[string][]string{
		"*": {"fairlead.job.failed", "fairlead.deployment.succeeded"}, "fairlead.*": {"fairlead.job.failed", "fairlead.deployment.succeeded"},
		"fairlead.job.*": {"fairlead.job.failed"}, "fairlead.job.failed": {"fairlead.job.failed"},
		"fairlead.deployment.awaiting-approval": nil,
	} {
		if err := webhook.CheckFilter(pattern); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
		var got []string
		for _, kind := range []string{"fairlead.job.failed", "fairlead.deployment.succeeded"} {
			if webhook.Selects([]string{"fairlead.none", pattern}, kind) {
				got = append(got, kind)
			}
		}
		if strings.Join(got, " ") != strings.Join(selects, " ") {
			t.Errorf("%s selects %q, want %q", pattern, got, selects)
		}
	}
	for _, pattern := range []string{"", "job", "fairlead", "fairlead.", "fairlead.job*", "fairlead.*.failed", "Fairlead.job", "fairlead.job..x", "**", ".*", "fairlead.job.*.*", "fairlead." + strings.Repeat("x", 100)} {
		if fairlead.KindOf(webhook.CheckFilter(pattern)) != fairlead.KindInvalid {
			t.Errorf("%q is accepted", pattern)
		}
	}
}

func TestCheckURL(t *testing.T) {
	for _, ok := range []string{"https://example.com", "https://example.com:8443/hooks?key=1", "https://[2001:db8::1]/x"} {
		if err := webhook.CheckURL(ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "http://example.com", "example.com", "https://", "https:///x", "https://user@example.com", "https://user:password@example.com",
		"https://example.com/#x", "https:example.com", "file:///etc/passwd", "https://example.com/\n", "https://example.com/" + strings.Repeat("x", webhook.MaxURL)} {
		if fairlead.KindOf(webhook.CheckURL(bad)) != fairlead.KindInvalid {
			t.Errorf("%q is accepted", bad)
		}
	}
}
