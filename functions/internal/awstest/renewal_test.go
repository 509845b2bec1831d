package awstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// While an apply runs, the runner renews its session, and the step renews the session of its operation's role. AWS then ends
// the earlier sessions. The apply writes its state with the new credentials of the role, and the next jobs come from the
// runner's queue with the new credentials of the runner.
func TestSessionsAreRenewedDuringAnApply(t *testing.T) {
	skipIfShort(t)
	needTofu(t)
	a := deploy(t, releasedTemplate(t, released()))
	w := connect(t, a, map[string]http.Handler{planeHost: briefSessions(a.front())}).operated()
	defer w.close()
	gate := filepath.Join(t.TempDir(), "gate")
	w.ok("make a pipe", syscall.Mkfifo(gate, 0o600))
	w.app("slow", map[string]string{"main.tf": fmt.Sprintf(`resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "read line < %s"
  }
}
`, gate)})
	m := w.measured("slow", "acme", nil)
	defer m.stop()
	install := ask[wire.Install](w, "install", "show", "acme")
	runner, session, provision := ask[wire.Runner](w, "runner", "show", install.Runner), w.attribute("SessionRole", "Arn"), m.customer.attribute("ProvisionRole", "Arn")
	// The tools and the step ask for new credentials before each request, as in the last minutes of an hour.
	w.guard.Shorten(provision, 4*time.Minute)

	d, jobs := m.deploy(t.Context(), false)
	apply := jobs["apply"].ID
	var pipe *os.File
	w.eventually("the apply waits", func() (opened bool) {
		var err error
		pipe, err = os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails while no process reads
		return err == nil
	})
	w.eventually("the runner has renewed its session", func() bool { return len(w.keysOf(session, runner.ID)) > 1 })
	if now := ask[wire.Runner](w, "runner", "show", install.Runner); len(now.Sessions) != 1 || now.Sessions[0].ID != runner.Sessions[0].ID {
		t.Errorf("the runner has the sessions %+v, want one that it renewed: %+v", now.Sessions, runner.Sessions)
	}
	keys := w.keysOf(session, runner.ID)
	w.guard.Expire(keys[:len(keys)-1]...)
	before := w.keysOf(provision, apply)
	w.guard.Expire(before...)
	polls := w.guard.Uses(session, "sqs:ReceiveMessage")

	_, err := pipe.WriteString("go\n")
	w.ok("let the apply end", errors.Join(err, pipe.Close()))
	if d = m.untilDone(t.Context(), d); d.State != "succeeded" {
		t.Fatalf("the deployment is %s: %s\n%s", d.State, d.Message, w.cli("job", "logs", apply))
	}
	if after := w.keysOf(provision, apply); len(after) <= len(before) {
		t.Errorf("the apply had %d sessions of its role before they expired and %d at its end, want more", len(before), len(after))
	}
	w.eventually("the runner polls its queue with the renewed session", func() bool { return w.guard.Uses(session, "sqs:ReceiveMessage") > polls })
	claimed := w.guard.Uses(session, "sqs:DeleteMessage")
	if next, _ := m.deploy(t.Context(), true); next.State != "succeeded" {
		t.Errorf("the next plan is %s: %s", next.State, next.Message)
	}
	if w.guard.Uses(session, "sqs:DeleteMessage") == claimed {
		t.Error("no job came from the runner's queue after its earlier credentials had expired")
	}
}

// sessionFor is how long a session lasts for a runner behind briefSessions. It is longer than the time until the renewal is due
// (0.66 of it) and one poll of the queue (20 s).
const sessionFor = 75 * time.Second

// briefSessions serves the control plane, and answers that each session of a runner expires after sessionFor. The runner has no
// other clock than that of this machine, so it renews the session early.
func briefSessions(plane http.Handler) http.Handler {
	return edited(plane, wire.CreateSession, func(_ *http.Request, answer []byte) []byte {
		var s map[string]json.RawMessage
		if json.Unmarshal(answer, &s) == nil && s["expires_at"] != nil {
			s["expires_at"], _ = json.Marshal(time.Now().Add(sessionFor))
			answer, _ = json.Marshal(s)
		}
		return answer
	})
}

// edited serves the control plane, and edits the body of each answer of a route.
func edited(plane http.Handler, route wire.Route, edit func(r *http.Request, answer []byte) []byte) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		plane.ServeHTTP(got, r.WithContext(r.Context())) // a copy, because plane replaces the values of the path
		text := edit(r, got.Body.Bytes())
		for name, values := range got.Header() {
			if !strings.EqualFold(name, "Content-Length") {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(got.Code)
		_, _ = bytes.NewReader(text).WriteTo(w) // the runner may be gone
	})
	mux.Handle("/", plane)
	return mux
}
