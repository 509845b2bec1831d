package terraform

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/runner/plugin/internal/plane"
)

// relayRetryTime is how long a relay repeats a request: it outlasts a restart of the control plane, as the tools do that call
// the control plane directly.
const relayRetryTime = time.Minute

// maxRelayed is the largest state that a relay reads from the tool, in bytes. The control plane has a lower limit, and its
// refusal names both sizes.
const maxRelayed = 128 << 20

// relay serves the tools' http backend on a loopback address, and passes the requests on to the control plane. The tools
// send a state in one request, whatever its size is. The relay's client sends it in parts if the control plane's front end
// does not accept it as a whole. The tool gets a password that is valid only at the relay, and not the lease token.
//
// If the runner has a key, the relay encrypts each state that the tool writes and opens each state that it reads, so the
// control plane never has a state in clear. See vault for what the relay does with a state that it did not encrypt.
//
// A relay ends with its step. If the step is killed, a tool that survives it cannot save its state any more; the agent then
// keeps the copy that the tool leaves.
type relay struct {
	client   *client.Client
	job      string
	path     string // of the state
	password string
	vault    *vault
	within   time.Duration // how long a request is repeated
	log      io.Writer     // of the job
	server   *http.Server
	url      string
	done     chan struct{} // closed when the server has ended
}

// startRelay starts a relay of the state at a path below the control plane's URL.
func startRelay(c *client.Client, job, path string, v *vault, log io.Writer) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the state to the tool: %w", err)
	}
	r := &relay{client: c, job: job, path: path, password: rand.Text(), vault: v, within: relayRetryTime, log: log, url: "http://" + l.Addr().String(), done: make(chan struct{})}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(r.done)
		if err := r.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(log, "the state can no longer be served to the tool: %v\n", err)
		}
	}()
	return r, nil
}

// close ends the relay. The tool has ended before.
func (r *relay) close() {
	_ = r.server.Close() // no request is left
	<-r.done
}

// ServeHTTP implements http.Handler. It answers with 502 if the control plane cannot be reached, or if another server answers
// in its place: the tools repeat such a request, but take a 404 for a missing state.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if _, password, _ := req.BasicAuth(); subtle.ConstantTimeCompare([]byte(password), []byte(r.password)) == 0 {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if req.URL.Path != r.path && req.URL.Path != r.path+"/lock" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxRelayed))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest) // the tool is gone, or its state is far too large
		return
	}
	onLock := req.URL.Path != r.path
	if !onLock && len(body) > 0 {
		if !matchesMD5(req.Header, body) {
			w.WriteHeader(http.StatusUnprocessableEntity) // the tool has another state than the one that arrived
			return
		}
		if body, err = r.vault.seal(body); err != nil {
			r.refuse(w, err)
			return
		}
		setMD5(req.Header, body)
	}
	if onLock && req.Method == http.MethodDelete {
		r.encryptStored(req.Context())
	}
	a, err := r.ask(req, body)
	if err == nil && !onLock && req.Method == http.MethodGet && a.Status == http.StatusOK {
		if a.Body, err = r.vault.open(a.Body); err != nil {
			r.refuse(w, err)
			return
		}
	}
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return // the tool is gone
	case ok && client.Refused(err):
		a.Status, a.Kind, a.Body = refused.Status, "text/plain; charset=utf-8", []byte(refused.Error())
	case err != nil:
		a.Status, a.Kind, a.Body = http.StatusBadGateway, "text/plain; charset=utf-8", []byte(err.Error())
	}
	if a.Status >= http.StatusBadRequest && a.Status != http.StatusLocked { // the tools print a lock info, but of other answers only the status
		fmt.Fprintf(r.log, "%s of the state: the control plane answered %d: %s\n", req.Method, a.Status, detailOf(a, err))
	}
	w.Header().Set("Content-Type", a.Kind)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the tool may be gone
}

// ask sends a request to the control plane, and repeats it.
func (r *relay) ask(req *http.Request, body []byte) (client.StateAnswer, error) {
	return plane.Ask(req.Context(), r.within, partsRequestTimeout, func(ctx context.Context) (client.StateAnswer, error) {
		return r.client.State(req.WithContext(ctx), r.job, body)
	})
}

// refuse answers a request whose state cannot be encrypted or opened. The tools do not repeat a request after this status.
func (r *relay) refuse(w http.ResponseWriter, err error) {
	fmt.Fprintf(r.log, "%v\n", err)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusConflict)
	_, _ = io.WriteString(w, err.Error()) // the tool may be gone
}

// encryptStored replaces the stored state by the same state, encrypted for the current key, if the tool has read a state that
// is not. The tool has the lock. A failure is no failure of the job: the next job does the same.
func (r *relay) encryptStored(ctx context.Context) {
	state := r.vault.unsealed()
	if state == nil {
		return
	}
	sealed, err := r.vault.seal(state)
	if err == nil {
		var req *http.Request
		if req, err = http.NewRequestWithContext(ctx, http.MethodPost, r.path, nil); err == nil {
			setMD5(req.Header, sealed)
			var a client.StateAnswer
			if a, err = r.ask(req, sealed); err == nil {
				err = a.Problem()
			}
		}
	}
	if err != nil {
		fmt.Fprintf(r.log, "The stored state could not be encrypted: %v. The next job of the component tries again.\n", err)
		return
	}
	fmt.Fprintln(r.log, "The stored state is now encrypted for the install's key.")
}

// matchesMD5 reports whether the body is the one of which a tool sent the MD5. Not all versions of the tools send one.
func matchesMD5(h http.Header, body []byte) bool {
	want := h.Get("Content-MD5")
	return want == "" || want == md5Of(body)
}

// setMD5 sets the MD5 of a body, which finds damage on the way.
func setMD5(h http.Header, body []byte) { h.Set("Content-MD5", md5Of(body)) }

func md5Of(body []byte) string {
	sum := md5.Sum(body) // detects transfer errors; not meant as a protection against attackers
	return base64.StdEncoding.EncodeToString(sum[:])
}

// detailOf returns what a failed answer reports.
func detailOf(a client.StateAnswer, err error) string {
	if err != nil {
		return err.Error()
	}
	return a.Problem().Error()
}
