package oidclogin

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// Another page in the person's browser can send requests to the loopback server. It does not know the state.
func TestOnlyTheAnswerToThisLoginCounts(t *testing.T) {
	for name, row := range map[string]struct {
		target string
		status int
		want   answer
	}{
		"the answer to this login":   {"/callback?state=s&code=c", 200, answer{code: "c"}},
		"a refusal":                  {"/callback?state=s&error=access_denied&error_description=no", 403, answer{reason: "access_denied", text: "no"}},
		"a code without the state":   {"/callback?code=c", 400, answer{}},
		"a code of another login":    {"/callback?state=t&code=c", 400, answer{}},
		"a longer state":             {"/callback?state=ss&code=c", 400, answer{}},
		"a refusal of another login": {"/callback?state=t&error=x", 400, answer{}},
		"another path":               {"/?state=s&code=c", 404, answer{}},
	} {
		answers := make(chan answer, 1)
		rec := httptest.NewRecorder()
		receive("s", answers).ServeHTTP(rec, httptest.NewRequest("GET", row.target, nil))
		var got answer
		select {
		case got = <-answers:
		default:
		}
		if rec.Code != row.status || got != row.want || strings.Contains(rec.Body.String(), "=") {
			t.Errorf("%s: status %d, %+v, page %q; want %d, %+v", name, rec.Code, got, rec.Body, row.status, row.want)
		}
	}
}

func TestTheFirstAnswerCounts(t *testing.T) {
	answers := make(chan answer, 1)
	h := receive("s", answers)
	for _, code := range []string{"1", "2"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/callback?state=s&code="+code, nil))
	}
	if got := <-answers; got.code != "1" || len(answers) > 0 {
		t.Errorf("the answer is %+v, and %d wait", got, len(answers))
	}
}
