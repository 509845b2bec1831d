package agent

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// renewals is a control plane that opens and renews sessions.
type renewals struct {
	older  bool     // a control plane that cannot renew sessions
	seen   []string // the requests: challenge, or the nonce of a session request
	refuse string   // nonce that is refused
	status int      // of the problem that answers each session request after the first; 0: none
	fail   string   // nonce whose first request gets 500
}

func (r *renewals) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/challenges") {
		r.seen = append(r.seen, "challenge")
		return answer(req, http.StatusOK, wire.Challenge{Nonce: "new", Report: true})
	}
	var in wire.SessionRequest
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
		return nil, err
	}
	r.seen = append(r.seen, in.Nonce)
	if r.status != 0 && len(r.seen) > 2 {
		return answer(req, r.status, wire.Problem{Type: wire.ProblemType + "refused"})
	}
	switch in.Nonce {
	case r.refuse:
		return answer(req, http.StatusUnauthorized, struct{}{})
	case r.fail:
		r.fail = ""
		return answer(req, http.StatusInternalServerError, struct{}{})
	}
	out := wire.Session{Token: "t", ExpiresAt: time.Now().Add(15 * time.Minute), RenewalNonce: fmt.Sprint("after ", len(r.seen))}
	if r.older {
		out.RenewalNonce = ""
	}
	return answer(req, http.StatusCreated, out)
}

// A renewal is one request. The agent asks for a challenge only if it has no nonce.
func TestRenewalNeedsNoChallenge(t *testing.T) {
	for name, row := range map[string]struct {
		plane renewals
		after time.Duration // time from one use of the session to the next; 0: 10 minutes
		want  []string
	}{
		"each renewal gives the nonce of the next": {renewals{}, 0, []string{"challenge", "new", "after 2", "after 3"}},
		"the control plane refuses the renewal":    {renewals{refuse: "after 2"}, 0, []string{"challenge", "new", "after 2", "challenge", "new", "after 5"}},
		"the renewal fails, and is repeated":       {renewals{fail: "after 2"}, 0, []string{"challenge", "new", "after 2", "after 2", "after 4"}},
		"the session expired":                      {renewals{}, 16 * time.Minute, []string{"challenge", "new", "challenge", "new", "challenge", "new"}},
		"an older control plane gives no nonce":    {renewals{older: true}, 0, []string{"challenge", "new", "challenge", "new", "challenge", "new"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := sessionWith(t, &row.plane)
				for range 3 {
					if _, err := s.get(t.Context()); err != nil {
						if _, err = s.get(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					<-time.After(max(row.after, 10*time.Minute))
				}
				if !slices.Equal(row.plane.seen, row.want) {
					t.Errorf("the agent sent %q, want %q", row.plane.seen, row.want)
				}
			})
		})
	}
}

// Whatever final refusal a renewal gets, the agent asks for a challenge at once, and never sends the refused nonce again.
func TestRefusedRenewalAsksForAChallenge(t *testing.T) {
	for status, want := range map[int][]string{
		http.StatusUnauthorized:        {"challenge", "new", "after 2", "challenge", "new", "challenge", "new"},
		http.StatusForbidden:           {"challenge", "new", "after 2", "challenge", "new", "challenge", "new"},
		http.StatusNotFound:            {"challenge", "new", "after 2", "challenge", "new", "challenge", "new"},
		http.StatusConflict:            {"challenge", "new", "after 2", "challenge", "new", "challenge", "new"},
		http.StatusGone:                {"challenge", "new", "after 2", "challenge", "new", "challenge", "new"},
		http.StatusTooManyRequests:     {"challenge", "new", "after 2", "after 2"}, // busy: a challenge would be one more request
		http.StatusInternalServerError: {"challenge", "new", "after 2", "after 2"},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plane := renewals{status: status}
				s := sessionWith(t, &plane)
				if _, err := s.get(t.Context()); err != nil {
					t.Fatal(err)
				}
				<-time.After(10 * time.Minute)
				for range 2 {
					if _, err := s.get(t.Context()); !client.HasStatus(err, status) {
						t.Errorf("the refused session: %v", err)
					}
				}
				if !slices.Equal(plane.seen, want) {
					t.Errorf("the agent sent %q, want %q", plane.seen, want)
				}
			})
		})
	}
}

func sessionWith(t *testing.T, plane *renewals) *session {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Version: "test", Random: func() float64 { return 0 }, Transport: plane}
	base, err := newClient("https://control.example", o)
	if err != nil {
		t.Fatal(err)
	}
	return newSession(base, identity{RunnerID: "run_1", key: key}, "test", o, fixed(), time.Now)
}
