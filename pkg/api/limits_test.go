package api_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// anOrg creates an org and returns the token of its owner.
func (p *plane) anOrg(name string) string {
	p.t.Helper()
	if err := p.RegisterOperator(p.t.Context(), fairlead.DefaultOrg, "admin", p.api); err != nil {
		p.t.Fatal(err)
	}
	return call[wire.Org](p, "POST", "/v1/orgs", p.api, wire.CreateOrgRequest{Name: name}).Token
}

// named checks that a refusal names a limit with its value.
func named(t *testing.T, res result, limit, most string) {
	t.Helper()
	if d := res.problem(t).Details; d["limit"] != limit || d["most"] != most {
		t.Errorf("the refusal names the limit %v, want %s of %s", d, limit, most)
	}
}

// An org with many tokens has the rate of an org, and not the rate of its tokens together.
func TestRequestRateOfAnOrgIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 20
		p := newBubblePlane(t, limited(api.CallerLimits{OrgRate: 5, OrgBurst: burst}))
		stranger := p.anOrg("stranger")
		tokens := []string{p.another("one"), p.another("two"), p.another("three")}
		session := p.session("local")
		time.Sleep(time.Minute) // bubble time: the burst is available again
		for n := range burst {
			if res := p.send("GET", "/v1/apps", tokens[n%len(tokens)], nil); res.StatusCode != 200 {
				t.Fatalf("request %d: %d %s", n, res.StatusCode, short(res.body))
			}
		}
		for _, token := range tokens {
			res := p.send("GET", "/v1/apps", token, nil)
			throttled(t, "one more request", res, "too-many-requests")
			named(t, res, "org-requests-per-second", "5")
		}
		for what, res := range map[string]result{"another org's": p.send("GET", "/v1/apps", stranger, nil),
			"an agent's": p.send("POST", "/runner/v1/session/heartbeat", session, wire.SessionHeartbeat{Running: []string{}, Capacity: 1})} {
			if res.StatusCode != 200 {
				t.Errorf("%s request is answered %d: %s", what, res.StatusCode, short(res.body))
			}
		}
		p.shutDown()
	})
}

// The requests of a flooding org wait for each other. Another org's request does not wait behind them.
func TestFloodOfAnOrgWaitsInItsOwnQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce, flood = 3, 40
		ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		e := &slow{Engine: enginetest.Memory(), is: func(partition string) bool { return strings.HasSuffix(partition, "#APP") }}
		p := newPlaneOn(t, e, ln, &http.Transport{DialContext: ln.dial}, limited(api.CallerLimits{OrgRequests: atOnce}))
		stranger := p.anOrg("stranger")
		tokens := []string{p.another("one"), p.another("two")}
		e.most = 0
		answers := make(chan result, flood)
		for n := range flood {
			go func() {
				res, err := p.try(t.Context(), "GET", "/v1/apps", tokens[n%2], nil)
				if err != nil {
					t.Error(err)
				}
				answers <- res
			}()
		}
		synctest.Wait()
		if e.most != atOnce {
			t.Errorf("%d requests of the org are handled at the same time, want %d", e.most, atOnce)
		}
		used := map[string]int{}
		for _, l := range call[wire.Limits](p, "GET", "/v1/limits", stranger, nil).Limits {
			if l.Used != nil {
				used[l.Name] = *l.Used
			}
		}
		if used["org-requests-at-once"] != 1 || used["tokens"] != 1 {
			t.Errorf("another org uses %v", used)
		}
		began := time.Now()
		if res := p.send("GET", "/v1/apps", stranger, nil); res.StatusCode != 200 || time.Since(began) > time.Second {
			t.Errorf("another org's request is answered %d after %s", res.StatusCode, time.Since(began))
		}
		answered := 0
		for range flood {
			res := <-answers
			if res.StatusCode == 200 {
				answered++
				continue
			}
			throttled(t, "a request of the flood", res, "too-many-at-once") // it waited for ten seconds
			named(t, res, "org-requests-at-once", "3")
		}
		if answered < 10*atOnce || answered == flood {
			t.Errorf("%d of %d requests of the flood are answered", answered, flood)
		}
		p.shutDown()
	})
}

// The answer of limits has what is used of each quota, of the requests of the org, and of the token.
func TestLimitsShowWhatIsUsed(t *testing.T) {
	p := newPlane(t, limited(api.CallerLimits{Rate: 77}))
	p.publish()
	p.install("acme")
	p.another("ci")
	type row struct{ used, limit int }
	got := map[string]row{}
	for _, l := range call[wire.Limits](p, "GET", "/v1/limits", p.api, nil).Limits {
		used := -1
		if l.Used != nil {
			used = *l.Used
		}
		got[l.Name] = row{used, l.Limit}
	}
	for name, want := range map[string]row{"apps": {1, 1000}, "installs": {1, 20000}, "webhooks": {0, 20}, "users": {0, 500},
		"requests-per-second": {-1, 77}, "requests-at-once": {1, 200}, "org-requests-at-once": {1, 16}, "waits": {0, 500}} {
		if got[name] != want {
			t.Errorf("limit %s is %v, want %v", name, got[name], want)
		}
	}
	if got["tokens"].used < 2 || got["requests-burst"].used < 1 {
		t.Errorf("tokens are %v, the burst is %v", got["tokens"], got["requests-burst"])
	}
}
