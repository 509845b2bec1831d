package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// front is a proxy between the runner and the AWS server. The function do gets each request, the request's operation and the
// number of requests of this operation. If do returns an AWS error code, the proxy answers with the code. If do returns "",
// the server answers.
type front struct {
	mu   sync.Mutex
	seen map[string]int
	do   func(r *http.Request, operation string, n int) (code string, at time.Time)
}

// behind puts a front in front of the account's server.
func (a *account) behind(do func(r *http.Request, operation string, n int) (code string, at time.Time)) *front {
	a.t.Helper()
	server, err := url.Parse(a.server)
	if err != nil {
		a.t.Fatal(err)
	}
	f, proxy := &front{seen: map[string]int{}, do: do}, httputil.NewSingleHostReverseProxy(server)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // the runner has closed the connection
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := r.Header.Get("X-Amz-Target")
		operation := target[strings.LastIndexByte(target, '.')+1:]
		f.mu.Lock()
		f.seen[operation]++
		code, at := f.do(r, operation, f.seen[operation])
		f.mu.Unlock()
		if code == "" {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amzn-ErrorType", code)
		w.Header().Set("Date", cmp.Or(at, time.Now()).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"__type":%q,"message":"refused"}`, code)
	}))
	a.t.Cleanup(srv.Close)
	a.server = srv.URL
	return f
}

func (f *front) set(do func(*http.Request, string, int) (string, time.Time)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do = do
}

// A message on a runner's queue that is not a wake-up for its jobs starts no job and blocks nothing. An unreadable message is
// refused each time and ends in the dead-letter queue, where a person finds it. A wake-up for a job of another runner is
// deleted.
func TestForeignMessagesEndAmongTheDeadLetters(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	t.Parallel()
	const receives = 2 // an agent waits a second after each refusal
	a := newAccountOf(t, receives)
	// A refused message is visible again at once, instead of after half a minute.
	f := a.behind(func(r *http.Request, operation string, _ int) (string, time.Time) {
		if operation == "ReceiveMessage" {
			var in map[string]any
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Errorf("read a request: %v", err)
			}
			in["VisibilityTimeout"] = 0
			body, _ := json.Marshal(in) // no error: in was decoded from JSON
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		return "", time.Time{}
	})
	s := plane.New(t, a.options())
	agent := startAgent(t, s, "", a.environ()...)

	want := map[string]string{}
	for what, body := range map[string]string{
		"plain text":                       "run",
		"a space":                          " ",
		"null":                             "null",
		"a list of wake-ups":               `[{"v":1,"job":"job_1"}]`,
		"a wake-up of a later version":     `{"v":2,"job":"job_1"}`,
		"a wake-up without a version":      `{"job":"job_1"}`,
		"a wake-up for no job":             `{"v":1,"job":""}`,
		"a wake-up whose job is an object": `{"v":1,"job":{"id":"job_1"}}`,
		"a wake-up that was cut off":       `{"v":1,"job":"job_`,
		"two wake-ups in one":              `{"v":1,"job":"job_1"}{"v":1,"job":"job_2"}`,
		"a job's spec":                     `{"payload":"eyJvcGVyYXRpb24iOiJhcHBseSJ9","signatures":[]}`,
		"a domain event":                   `{"v":1,"type":"fairlead.job.queued","subject":"job_1"}`,
		"a notification of S3":             `{"Records":[{"eventSource":"aws:s3"}]}`,
		"a message of SQS's maximum size":  strings.Repeat("x", 200<<10),
	} {
		a.send([]byte(body))
		want[body] = what
	}
	sent := len(want)
	s.Until("all messages in the dead-letter queue", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		dead, err := a.queue.DeadLetters(ctx, queueOfRunner, 10)
		if err != nil {
			t.Error(err)
		}
		for _, m := range dead {
			if want[string(m.Body)] == "" {
				t.Errorf("unexpected dead letter %.100q", m.Body)
			}
			delete(want, string(m.Body))
		}
		return len(want) == 0
	})
	if claims, _ := s.Counts(); claims > 0 {
		t.Errorf("%d claims were made for messages that are not wake-ups", claims)
	}

	f.set(func(*http.Request, string, int) (string, time.Time) { return "", time.Time{} })
	a.wake("job_of_another_runner")
	a.wake("../../etc/passwd")
	job := s.Queue(direct())
	if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" || !j.ByName {
		t.Errorf("a later job finished as %+v, claimed by name: %t", *j.Finish, j.ByName)
	}
	if n := strings.Count(agent.out.String(), "a message that is not a wake-up"); n < receives*sent {
		t.Errorf("the agent's log has %d refusals, want %d for each of %d messages:\n%s", n, receives, sent, agent.out)
	}
	if dead, err := a.queue.DeadLetters(t.Context(), queueOfRunner, 10); err != nil || len(dead) > 0 {
		t.Errorf("dead letters %v, %v: a wake-up without a job must be deleted", dead, err)
	}
}

// AWS refuses credentials that it granted, in the middle of a job. The job continues, and no line of its log is lost.
func TestJobSurvivesRefusedAWSCredentials(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	t.Parallel()
	const behind = 10 * time.Minute
	// clock refuses requests that are not signed with the time of AWS's clock, and returns AWS's time.
	clock := func(r *http.Request, _ string, _ int) (string, time.Time) {
		at := time.Now().Add(behind)
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || at.Sub(signed).Abs() > 5*time.Minute {
			return "InvalidSignatureException", at
		}
		return "", time.Time{}
	}
	on := func(operations []string, from int, code string) func(*http.Request, string, int) (string, time.Time) {
		return func(_ *http.Request, operation string, n int) (string, time.Time) {
			if slices.Contains(operations, operation) && n >= from {
				return code, time.Time{}
			}
			return "", time.Time{}
		}
	}
	queue, log := []string{"ReceiveMessage", "DeleteMessage"}, []string{"PutLogEvents", "CreateLogStream"}
	for name, tt := range map[string]struct {
		do     func(*http.Request, string, int) (string, time.Time)
		byName bool // the job was claimed by its wake-up
		direct bool // the log was written to CloudWatch directly
	}{
		"expired credentials of the queue: jobs are claimed through the API": {on(queue, 1, "ExpiredToken"), false, true},
		"revoked credentials of the queue: jobs are claimed through the API": {on(queue, 1, "InvalidClientTokenId"), false, true},
		"a wake-up that cannot be deleted: the job still runs":               {on(queue[1:], 1, "ExpiredToken"), true, true},
		"expired credentials of the log: it goes through the API":            {on(log, 1, "ExpiredTokenException"), true, false},
		"credentials of the log that expire: the rest goes through the API":  {on(log[:1], 2, "ExpiredTokenException"), true, false},
		"both revoked: everything goes through the API":                      {on(slices.Concat(queue, log), 1, "AccessDeniedException"), false, false},
		"the runner's clock is ten minutes behind: it signs with AWS's time": {clock, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t)
			a.behind(tt.do)
			s := plane.New(t, a.options())
			startAgent(t, s, "", a.environ()...)
			job := s.Queue(direct())
			j := s.UntilFinished(job)
			if j.Finish.Outcome != "succeeded" || j.ByName != tt.byName || (j.Appends == 0) != tt.direct {
				t.Errorf("finished as %+v, claimed by name: %t, %d appends", *j.Finish, j.ByName, j.Appends)
			}
			if j.Finish.Log.Truncated || int64(len(j.Log)) != j.Finish.Log.Size || !strings.Contains(string(j.Log), job) {
				t.Errorf("of a log of %d bytes, %q arrived", j.Finish.Log.Size, j.Log)
			}
		})
	}
}
