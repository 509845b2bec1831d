package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// huma treats an empty value as a missing one.
func TestEmptyIntegersAndBoolsAreRefused(t *testing.T) {
	c := newCast(t)
	deployment := "/v1/deployments/" + c.deployment
	for _, test := range []struct{ method, path, where string }{
		{"GET", "/v1/runner-channels?limit=", "query.limit"},
		{"GET", "/v1/apps?limit", "query.limit"},
		{"GET", "/v1/apps?limit=5&limit=", "query.limit"},
		{"GET", deployment + "?wait_seconds=", "query.wait_seconds"},
		{"GET", deployment + "?after=&wait_seconds=0", "query.after"},
		{"DELETE", "/v1/installs/acme?abandon=", "query.abandon"},
		{"GET", "/v1/installs/acme/outputs?show_sensitive=", "query.show_sensitive"},
		{"GET", "/v1/jobs?id=", "query.id"},
	} {
		res := c.send(test.method, test.path, c.api, nil)
		p := res.problem(t)
		if code := res.code(t); res.StatusCode != 422 || code != "invalid-request" || len(p.Errors) != 1 || p.Errors[0].Location != test.where {
			t.Errorf("%s %s: %d %s with errors %+v", test.method, test.path, res.StatusCode, code, p.Errors)
		}
	}
	for _, path := range []string{"/v1/apps?cursor=", "/v1/apps?limit=5", deployment + "?wait_seconds=0"} {
		if res := c.send("GET", path, c.api, nil); res.StatusCode != 200 {
			t.Errorf("%s: status %d", path, res.StatusCode)
		}
	}
	if res := c.send("GET", "/v1/apps?limit=", "", nil); res.StatusCode != 401 {
		t.Errorf("without a token: status %d, want 401: the token must be checked first", res.StatusCode)
	}
}

// Formerly the answer was "json: cannot unmarshal number 3600.0 into Go struct field CreateDeploymentRequest.plans_expire_seconds of type int64".
func TestWrongTypeIsReportedWithoutTermsOfGo(t *testing.T) {
	c := newCast(t)
	for body, want := range map[string]string{
		`{"kind":"deploy","plans_expire_seconds":3600.0}`: "plans_expire_seconds must be a whole number in its range, without point and exponent",
		`{"kind":"deploy","plans_expire_seconds":1e3}`:    "plans_expire_seconds must be a whole number in its range, without point and exponent",
	} {
		p := c.send("POST", "/v1/installs/acme/deployments", c.api, body).problem(t)
		if len(p.Errors) != 1 || p.Errors[0].Message != want {
			t.Errorf("%s: got %+v, want %q", body, p.Errors, want)
		}
	}
}

func TestProblemLocatesTheMalformedPart(t *testing.T) {
	c := newCast(t)
	lease, job := c.running.lease, "/runner/v1/jobs/"+c.running.claim.Job
	long := strings.Repeat("x", 64<<10)
	for _, test := range []struct {
		consequence, method, path, token string
		body                             any
		headers                          []string
		status                           int
		code                             string
		where                            string // in errors
	}{
		{"broken JSON", "POST", "/v1/installs", c.api, `{"name":`, nil, 400, "malformed-request", ""},
		{"a whole number with a point", "POST", "/v1/installs/acme/deployments", c.api, `{"kind":"deploy","plans_expire_seconds":3600.0}`, nil, 422, "invalid-request", "body"},
		{"two values in one body", "POST", "/v1/installs", c.api, `{} {}`, nil, 400, "malformed-request", ""},
		{"no body", "POST", "/v1/installs", c.api, nil, nil, 400, "malformed-request", ""},
		{"null as body", "POST", "/v1/installs", c.api, `null`, nil, 422, "invalid-request", "body"},
		{"an array as body", "POST", "/v1/installs", c.api, `[]`, nil, 422, "invalid-request", "body"},
		{"an unknown field", "POST", "/v1/installs", c.api, `{"name":"a","app":"shop","colour":"red"}`, nil, 422, "invalid-request", "body.colour"},
		{"a field of the wrong type", "POST", "/v1/installs", c.api, `{"name":1,"app":"shop"}`, nil, 422, "invalid-request", "body.name"},
		{"a map of the wrong type", "POST", "/v1/installs", c.api, `{"name":"a","app":"shop","inputs":[]}`, nil, 422, "invalid-request", "body.inputs"},
		{"a missing field", "POST", "/v1/installs", c.api, `{"name":"a"}`, nil, 422, "invalid-request", "body"},
		{"an empty name", "POST", "/v1/installs", c.api, `{"name":"a","app":""}`, nil, 422, "invalid-request", "body.app"},
		{"a name too long for a key", "POST", "/v1/installs", c.api, `{"name":"a","app":"` + long + `"}`, nil, 422, "invalid-request", "body.app"},
		{"a name with a separator of keys", "POST", "/v1/installs", c.api, `{"name":"a","app":"a#b\u0000"}`, nil, 404, "app-not-found", ""},
		{"a bad name", "POST", "/v1/installs", c.api, `{"name":"A B","app":"shop"}`, nil, 422, "invalid-name", ""},
		{"a value outside an enumeration", "POST", "/v1/installs/acme/deployments", c.api, `{"kind":"explode"}`, nil, 422, "invalid-request", "body.kind"},
		{"a fraction for a whole number", "POST", "/runner/v1/claims", c.sessionToken, `{"wait_seconds":0.5}`, nil, 422, "invalid-request", "body.wait_seconds"},
		{"a wait beyond the limit", "POST", "/runner/v1/claims", c.sessionToken, `{"wait_seconds":21}`, nil, 422, "invalid-request", "body.wait_seconds"},
		{"a negative wait", "GET", "/v1/deployments/" + c.deployment + "?wait_seconds=-1", c.api, nil, nil, 422, "invalid-request", "query.wait_seconds"},
		{"a number that is too large", "POST", "/runner/v1/claims", c.sessionToken, `{"wait_seconds":1e400}`, nil, 400, "malformed-request", ""},
		{"invalid base64", "POST", "/runner/v1/enrol", "", `{"token":"x","public_key":"!!"}`, nil, 422, "invalid-request", "body.public_key"},
		{"a key that is too short", "POST", "/runner/v1/enrol", "", `{"token":"x","public_key":"aaaa"}`, nil, 422, "invalid-key", ""},
		{"a config of the wrong kind", "POST", "/v1/apps/shop/versions", c.api, `{"config":7,"artifacts":{}}`, nil, 422, "invalid-config", ""},
		{"a config of null", "POST", "/v1/apps/shop/versions", c.api, `{"config":null,"artifacts":{}}`, nil, 422, "invalid-config", ""},
		{"artifacts that are not strings", "POST", "/v1/apps/shop/versions", c.api, `{"config":{},"artifacts":{"a":1}}`, nil, 422, "invalid-request", "body.artifacts.a"},
		{"JSON with too deep nesting", "POST", "/v1/apps/shop/versions", c.api, `{"artifacts":{},"config":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, nil, 400, "malformed-request", ""},

		{"a JSON body as form", "POST", "/v1/installs", c.api, `{"name":"a","app":"shop"}`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported-media-type", ""},
		{"a JSON body as text", "POST", "/v1/installs", c.api, `{"name":"a","app":"shop"}`, []string{"Content-Type", "text/plain"}, 415, "unsupported-media-type", ""},
		{"an invalid content type", "POST", "/v1/installs", c.api, `{}`, []string{"Content-Type", ";;;"}, 415, "unsupported-media-type", ""},
		{"a log as multipart", "PUT", job + "/log?offset=0", lease, []byte("x"), []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, "unsupported-media-type", ""},

		{"a JSON body beyond the limit", "POST", "/v1/installs", c.api, strings.Repeat(" ", 4<<20+1), nil, 413, "body-too-large", ""},
		{"a log append beyond the limit", "PUT", job + "/log?offset=0", lease, make([]byte, 1<<20+1), nil, 413, "body-too-large", ""},
		{"a plan beyond the limit", "PUT", job + "/plan", lease, make([]byte, 64<<20+1), nil, 413, "body-too-large", ""},
		{"a state beyond the limit", "POST", c.running.stateURL() + "?ID=x", "basic:" + lease, make([]byte, 64<<20+1), nil, 413, "body-too-large", ""},
		{"a lock info beyond the limit", "PUT", c.running.stateURL() + "/lock", "basic:" + lease, make([]byte, 8<<10+1), nil, 413, "body-too-large", ""},
		{"a lock info that is not JSON", "PUT", c.running.stateURL() + "/lock", "basic:" + lease, `{"ID":"x"} trailing`, nil, 422, "invalid-lock", ""},
		{"a lock info without ID", "PUT", c.running.stateURL() + "/lock", "basic:" + lease, `{}`, nil, 422, "invalid-lock", ""},
		{"an input too large for a record", "PATCH", "/v1/installs/idle", c.api, `{"inputs":{"password":"` + strings.Repeat("x", 400_000) + `"}}`, nil, 413, "record-too-large", ""},

		{"an unknown query parameter", "GET", "/v1/apps?colour=red", c.api, nil, nil, 422, "invalid-request", "query.colour"},
		{"a query with wrong encoding", "GET", "/v1/apps?limit=%zz", c.api, nil, nil, 400, "malformed-request", ""},
		{"a query that is not UTF-8", "GET", "/v1/deployments?install=%ff", c.api, nil, nil, 400, "malformed-request", ""},
		{"a NUL in the query", "GET", "/v1/deployments?install=a%00b", c.api, nil, nil, 400, "malformed-request", ""},
		{"a limit of 0", "GET", "/v1/apps?limit=0", c.api, nil, nil, 422, "invalid-request", "query.limit"},
		{"a limit beyond the largest", "GET", "/v1/apps?limit=201", c.api, nil, nil, 422, "invalid-request", "query.limit"},
		{"a limit that is not a number", "GET", "/v1/apps?limit=all", c.api, nil, nil, 422, "invalid-request", "query.limit"},
		{"a cursor that is not base64", "GET", "/v1/apps?cursor=***", c.api, nil, nil, 422, "bad-cursor", ""},
		{"a cursor that the server did not make", "GET", "/v1/installs?cursor=YWJj", c.api, nil, nil, 422, "bad-cursor", ""},
		{"a cursor beyond the limit", "GET", "/v1/jobs?cursor=" + strings.Repeat("a", 3000), c.api, nil, nil, 422, "invalid-request", "query.cursor"},
		{"no offset", "PUT", job + "/log", lease, []byte("x"), nil, 422, "invalid-request", "query.offset"},
		{"a negative offset", "PUT", job + "/log?offset=-1", lease, []byte("x"), nil, 422, "invalid-request", "query.offset"},
		{"an Idempotency-Key beyond the limit", "POST", "/v1/installs", c.api, `{"name":"a","app":"shop"}`, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 422, "invalid-request", "header.Idempotency-Key"},

		{"an unknown name", "GET", "/v1/installs/nowhere", c.api, nil, nil, 404, "install-not-found", ""},
		{"an encoded slash", "GET", "/v1/installs/a%2Fb", c.api, nil, nil, 404, "install-not-found", ""},
		{"an encoded dot-dot", "GET", "/v1/installs/%2e%2e", c.api, nil, nil, 404, "install-not-found", ""},
		{"another script", "GET", "/v1/installs/%E4%BD%A0%E5%A5%BD", c.api, nil, nil, 404, "install-not-found", ""},
		{"a separator of keys", "GET", "/v1/jobs/a%23b", c.api, nil, nil, 404, "job-not-found", ""},
		{"a NUL in the path", "GET", "/v1/installs/a%00b", c.api, nil, nil, 400, "malformed-request", ""},
		{"a path that is not UTF-8", "GET", "/v1/installs/%ff%fe", c.api, nil, nil, 400, "malformed-request", ""},
		{"a line break in the path", "GET", "/v1/installs/a%0Ab", c.api, nil, nil, 400, "malformed-request", ""},
		{"a name of 64 KiB", "GET", "/v1/installs/" + long, c.api, nil, nil, 422, "invalid-request", "path.install"},
		{"a job of 64 KiB", "POST", "/runner/v1/jobs/" + long + "/heartbeat", lease, "{}", nil, 403, "other-job", ""},
		{"an empty segment", "GET", "/v1/installs/", c.api, nil, nil, 404, "no-route", ""},
		{"a doubled slash", "GET", "/v1//installs", c.api, nil, nil, 404, "no-route", ""},
		{"a dot-dot", "GET", "/v1/apps/../installs", c.api, nil, nil, 404, "no-route", ""},
		{"an unknown path", "GET", "/v1/nothing", c.api, nil, nil, 404, "no-route", ""},
		{"the root", "GET", "/", "", nil, nil, 404, "no-route", ""},
		{"an unknown method", "BREW", "/v1/installs", c.api, nil, nil, 405, "method-not-allowed", ""},
		{"OPTIONS", "OPTIONS", "/v1/installs", "", nil, nil, 405, "method-not-allowed", ""},
		{"TRACE", "TRACE", "/v1/installs", c.api, nil, nil, 405, "method-not-allowed", ""},
		{"a method of another route", "PATCH", "/v1/apps/shop", c.api, nil, nil, 405, "method-not-allowed", ""},
		{"a method of another state route", "PATCH", c.running.stateURL(), "basic:" + lease, nil, nil, 405, "method-not-allowed", ""},
	} {
		t.Run(test.consequence, func(t *testing.T) {
			c.t = t
			if test.path == "/v1/installs/idle" && c.send("GET", test.path, c.api, nil).StatusCode == 404 {
				c.install("idle")
			}
			res := c.send(test.method, test.path, test.token, test.body, test.headers...)
			p := res.problem(t)
			if code := res.code(t); res.StatusCode != test.status || code != test.code {
				t.Errorf("answer %d %s, want %d %s: %s", res.StatusCode, code, test.status, test.code, short(res.body))
			}
			if test.where != "" && !slices.ContainsFunc(p.Errors, func(e wire.FieldError) bool { return e.Location == test.where && e.Message != "" }) {
				t.Errorf("none of the errors %+v is at %s", p.Errors, test.where)
			}
			if res.StatusCode == 405 && res.Header.Get("Allow") == "" {
				t.Error("the 405 has no header Allow")
			}
			if len(res.body) > 4<<10 || strings.Contains(string(res.body), "goroutine") {
				t.Errorf("the problem is too long or shows a stack trace: %s", short(res.body))
			}
		})
	}
	if strings.Contains(c.log.String(), "a request failed") || strings.Contains(c.log.String(), "panicked") {
		t.Errorf("the log has an internal error:\n%s", c.log)
	}
}

func TestBodyOfExactlyTheLimitIsAccepted(t *testing.T) {
	c := newCast(t)
	got := call[wire.LogAppended](c.plane, "PUT", "/runner/v1/jobs/"+c.running.claim.Job+"/log?offset=0", c.running.lease, make([]byte, 1<<20))
	if got.Next != 1<<20 {
		t.Errorf("next offset %d", got.Next)
	}
	call[struct{}](c.plane, "PUT", "/runner/v1/jobs/"+c.running.claim.Job+"/plan", c.running.lease, make([]byte, 64<<20))
}

// The test writes raw bytes, because net/http's client would not send such requests.
func TestTruncatedBodyIsMalformedRequest(t *testing.T) {
	p := newPlane(t)
	for name, raw := range map[string]string{
		"a chunk without a length":       "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"a body shorter than its length": "Content-Length: 100\r\n\r\n{}",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/installs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n%s", p.api, raw)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got := (result{res, body}).code(t); got != "malformed-request" {
			t.Errorf("%s: %d %s", name, res.StatusCode, got)
		}
		conn.Close() //nolint:errcheck // the answer was read
	}
}

func TestValidRequestIDIsKept(t *testing.T) {
	p := newPlane(t)
	for given, kept := range map[string]bool{"req-12345678": true, "a.b_c-D9": true, "": false, "short": false,
		"with space": false, strings.Repeat("x", 65): false, "<script>alert(1)": false, `","x":"`: false} {
		for _, path := range []string{"/v1/meta", "/v1/apps", "/nowhere", "/v2/"} {
			got := p.send("GET", path, "", nil, wire.HeaderRequestID, given).Header.Get(wire.HeaderRequestID)
			if kept != (got == given) || got == "" {
				t.Errorf("GET %s with request ID %q: answer has ID %q", path, given, got)
			}
		}
	}
}

func TestHEADAnswersAsGETWithoutABody(t *testing.T) {
	p := newPlane(t)
	if res := p.send("HEAD", "/v1/meta", "", nil); res.StatusCode != 200 || len(res.body) > 0 || res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: status %d with %d bytes", res.StatusCode, len(res.body))
	}
	if res := p.send("HEAD", "/v1/apps", "", nil); res.StatusCode != 401 {
		t.Errorf("HEAD without a token: status %d", res.StatusCode)
	}
}

func TestRepeatedIdempotencyKeyCreatesOneObject(t *testing.T) {
	c := newCast(t)
	// The test sends 16 concurrent requests for each kind of object.
	for _, test := range []struct {
		path string
		body any
	}{
		{"/v1/installs", wire.CreateInstallRequest{Name: "twice", App: "shop", Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"x"`)}}},
		{"/v1/installs/acme/deployments", wire.CreateDeploymentRequest{Kind: "deploy"}},
		{"/v1/runners", wire.CreateRunnerRequest{Name: "twice"}},
		{"/v1/runners/local/checks", nil},
	} {
		var mu sync.Mutex
		ids := map[string]int{}
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				res, err := c.try(context.Background(), "POST", test.path, c.api, test.body, wire.HeaderIdempotencyKey, "key of "+test.path)
				var made struct{ ID string }
				if err == nil {
					err = json.Unmarshal(res.body, &made)
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil || res.StatusCode != 201 {
					t.Errorf("POST %s: %v %s", test.path, err, short(res.body))
					return
				}
				ids[made.ID]++
			})
		}
		wg.Wait()
		if len(ids) != 1 {
			t.Errorf("POST %s created %d objects, want 1: %v", test.path, len(ids), ids)
		}
	}
	res := c.send("POST", "/v1/runners", c.api, wire.CreateRunnerRequest{Name: "third"}, wire.HeaderIdempotencyKey, "key of /v1/runners")
	if got := res.code(t); got != "idempotency-key-reused" {
		t.Errorf("the key of another request is refused with %s", got)
	}
	res = c.send("POST", "/v1/runners", c.api, wire.CreateRunnerRequest{Name: "twice"})
	if got := res.code(t); got != "runner-exists" {
		t.Errorf("the same request without a key is refused with %s", got)
	}
}

func TestPagesTogetherAreTheWholeList(t *testing.T) {
	p := newPlane(t)
	p.publish()
	want := []string{}
	for i := range 7 {
		name := fmt.Sprintf("install-%d", i)
		p.install(name)
		want = append(want, name)
	}
	for limit := 1; limit <= 8; limit++ {
		var got []string
		next, pages := "", 0
		for {
			page := call[wire.Page[wire.Install]](p, "GET", fmt.Sprintf("/v1/installs?limit=%d&cursor=%s", limit, next), p.api, nil)
			for _, in := range page.Items {
				got = append(got, in.Name)
			}
			if pages++; len(page.Items) > limit || pages > 20 {
				t.Fatalf("page %d with limit %d has %d items", pages, limit, len(page.Items))
			}
			if next = page.Next; next == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages with limit %d list %v", limit, got)
		}
	}
	for _, path := range []string{"/v1/apps", "/v1/installs", "/v1/runners", "/v1/deployments", "/v1/deployments?install=install-1", "/v1/jobs"} {
		res := p.send("GET", path, p.api, nil)
		if res.StatusCode != 200 || !bytes.Contains(res.body, []byte(`"items":[`)) {
			t.Errorf("GET %s: %d %s", path, res.StatusCode, short(res.body))
		}
	}
}

// Formerly only the end of a page's body named the next page, so a caller could not
// request it earlier.
func TestLinkHeaderNamesTheNextPage(t *testing.T) {
	p := newPlane(t)
	p.publish()
	for i := range 3 {
		p.install(fmt.Sprintf("install-%d", i))
	}
	at := &url.URL{Path: "/v1/installs", RawQuery: "limit=2"}
	var got []string
	for pages := 1; ; pages++ {
		res := p.send("GET", at.String(), p.api, nil)
		var page wire.Page[wire.Install]
		if err := json.Unmarshal(res.body, &page); err != nil || res.StatusCode != 200 {
			t.Fatalf("page %d: %d %s", pages, res.StatusCode, short(res.body))
		}
		for _, in := range page.Items {
			got = append(got, in.Name)
		}
		link := res.Header.Get("Link")
		if next := wire.NextCursor([]string{link}); next != page.Next || pages > 2 {
			t.Fatalf("page %d has the cursor %q but the link %q", pages, page.Next, link)
		}
		if link == "" {
			break
		}
		reference, err := url.Parse(strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`))
		if err != nil {
			t.Fatal(err)
		}
		if at = at.ResolveReference(reference); at.Path != "/v1/installs" || at.Query().Get("limit") != "2" {
			t.Errorf("the link of the next page resolves to %s", at)
		}
	}
	if want := []string{"install-0", "install-1", "install-2"}; !slices.Equal(got, want) {
		t.Errorf("the pages of the links list %q, want %q", got, want)
	}
}
