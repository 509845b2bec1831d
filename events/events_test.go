package events_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// golden compares v's indented JSON with testdata/name. Programs of other versions read this format. A difference
// needs a new version of the format, not an edit of the file.
func golden(t *testing.T, name string, v []byte) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, v, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the JSON differs from %s; it is\n%s", path, got.Bytes())
	}
}

func TestWakeHasFixedForm(t *testing.T) {
	b := events.Wake{Job: "job_01"}.Encode()
	golden(t, "wake.v1.json", b)
	w, err := events.DecodeWake(b)
	if err != nil || w != (events.Wake{V: 1, Job: "job_01"}) {
		t.Errorf("decoding returns %+v, %v", w, err)
	}
	for name, body := range map[string]string{
		"an empty body":              ``,
		"no JSON":                    `wake up!`,
		"another document":           `[]`,
		"no version":                 `{"job":"job_01"}`,
		"a newer version":            `{"v":2,"job":"job_01"}`,
		"no job":                     `{"v":1}`,
		"a job that is not a string": `{"v":1,"job":7}`,
		"two messages in one":        `{"v":1,"job":"job_01"}{"v":1,"job":"job_02"}`,
		"a truncated message":        `{"v":1,"job":"job_0`,
	} {
		if w, err := events.DecodeWake([]byte(body)); err == nil || w != (events.Wake{}) {
			t.Errorf("%s is decoded as %+v, want an error", name, w)
		}
	}
}

func TestDomainEventHasFixedForm(t *testing.T) {
	e := events.Domain{V: 1, Type: "job.succeeded", Subject: "job_01", Version: 7, Time: t0, Data: map[string]string{"deployment": "dep_01"}}
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "domain.v1.json", b)
	b, err = json.Marshal(events.Domain{V: 1, Type: "runner.lost", Subject: "run_01", Version: 1, Time: t0})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "domain-without-data.v1.json", b)
}
