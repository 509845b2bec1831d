package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// Four processes share nothing but the table, as functions. Together they permit an org about what its limit says, and another org is
// not affected.
func TestOrgRateHoldsOverProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, span = 10, 10
		p := newBubblePlane(t)
		other := identity.NewToken(identity.PrefixAPI)
		if err := p.RegisterToken(t.Context(), "globex", "admin", other); err != nil {
			t.Fatal(err)
		}
		shared, broken := 0, false
		count := func(ctx context.Context, org fairlead.OrgID, at int64, process string, number int, until time.Time) (int, error) {
			shared++
			if broken {
				return 0, errors.New("the table does not answer")
			}
			return p.NoteRequests(ctx, org, at, process, number, until)
		}
		var processes []http.Handler
		for i := range 4 {
			rates := api.NewOrgRates(perSecond, "process-"+strconv.Itoa(i), count, time.Now, slog.New(slog.DiscardHandler))
			processes = append(processes, api.ControlHandler(api.Options{Control: p.Control, IDs: fairlead.RandomIDs(time.Now), Logger: slog.New(slog.DiscardHandler), OrgRates: rates}))
		}
		send := func(process int, token, path string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			processes[process].ServeHTTP(w, r)
			return w
		}
		flood := func() (passed int, last *httptest.ResponseRecorder) {
			for range span {
				for i := range processes {
					for range 10 {
						if last = send(i, p.api, "/v1/apps"); last.Code == http.StatusOK {
							passed++
						}
					}
				}
				time.Sleep(time.Second) // bubble time
			}
			return passed, last
		}
		time.Sleep(time.Until(time.Now().Truncate(span * time.Second).Add(span * time.Second))) // bubble time: a span begins
		for i := range processes {
			for range 5 {
				if w := send(i, other, "/v1/apps"); w.Code != http.StatusOK {
					t.Fatalf("a quiet org: answer %d", w.Code)
				}
			}
		}
		if shared != 0 {
			t.Errorf("a quiet org costs %d writes", shared)
		}
		passed, last := flood()
		if passed < perSecond*span || passed > perSecond*span*3/2 {
			t.Errorf("%d of 400 requests pass in %d s, want %d and not much more", passed, span, perSecond*span)
		}
		if shared > len(processes)*span {
			t.Errorf("%d processes share %d times in %d s", len(processes), shared, span)
		}
		var refusal wire.Problem
		decode(t, last.Body.Bytes(), &refusal)
		if last.Code != http.StatusTooManyRequests || refusal.Details["limit"] != "org-requests-per-second" || refusal.Details["most"] != "10" || last.Header().Get("Retry-After") != "1" {
			t.Errorf("the last answer is %d with %+v and Retry-After %q", last.Code, refusal, last.Header().Get("Retry-After"))
		}
		if w := send(0, other, "/v1/limits"); w.Code != http.StatusOK || !hasLimit(t, w.Body.Bytes(), "org-requests-per-second", perSecond) {
			t.Errorf("the limits of another org: %d %s", w.Code, w.Body)
		}
		if passed, _ := flood(); passed < perSecond*span {
			t.Errorf("%d requests pass in the next span", passed)
		}
		broken = true
		if passed, _ := flood(); passed != 400 {
			t.Errorf("%d of 400 requests pass while the table does not answer", passed)
		}
	})
}

func hasLimit(t *testing.T, body []byte, name string, limit int) bool {
	t.Helper()
	var out wire.Limits
	decode(t, body, &out)
	for _, l := range out.Limits {
		if l.Name == name && l.Limit == limit && l.Used != nil {
			return true
		}
	}
	return false
}

func decode(t *testing.T, body []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}
