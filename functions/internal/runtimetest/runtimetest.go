// Package runtimetest runs a function's binary as Lambda does: the process asks the Lambda runtime
// API over HTTP for one invocation after another.
package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

// Timeout is the timeout of the functions that serve HTTP.
const Timeout = 29 * time.Second

// MaxPayload is the largest event and the largest answer of a synchronous invocation, in bytes of
// JSON. Lambda's documentation calls it 6 MB.
const MaxPayload = 6_291_556

// ErrPayload reports that an event is larger than MaxPayload. Lambda does not invoke the function.
var ErrPayload = errors.New("RequestEntityTooLargeException: the event is larger than 6291556 bytes")

// The types of a Failure that Lambda itself reports.
const (
	ResponseTooLarge = "Function.ResponseSizeTooLarge"
	TimedOut         = "Sandbox.Timedout"
)

// Failure is the error with which the function answered an invocation.
type Failure struct {
	Message string `json:"errorMessage"`
	Type    string `json:"errorType"`
}

func (f *Failure) Error() string { return f.Type + ": " + f.Message }

// Function is a running function. It handles its invocations one after another, as one Lambda
// environment does. Safe for concurrent use.
type Function struct {
	next    chan *invocation
	ready   chan struct{} // closed by the first request for an invocation
	once    sync.Once
	exited  chan struct{}
	kill    func()
	process *os.Process
	limit   time.Duration
	mu      sync.Mutex
	open    map[string]*invocation
	output  *output
}

type invocation struct {
	id     string
	trace  string // X-Ray's root, which the SDK sends with each request to AWS
	event  []byte
	answer chan answer
}

type answer struct {
	body []byte
	err  error
}

// Start starts the command and adds the runtime API to its environment. The process ends with the
// test. limit is the function's timeout: the function gets it as the deadline of an invocation, and
// its process ends at the deadline.
func Start(t testing.TB, cmd *exec.Cmd, limit time.Duration) *Function {
	t.Helper()
	f := &Function{next: make(chan *invocation), ready: make(chan struct{}), exited: make(chan struct{}), open: map[string]*invocation{}, output: &output{},
		limit: limit, kill: func() { _ = cmd.Process.Kill() }} // it may have ended already
	ctx, cancel := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	const prefix = "/2018-06-01/runtime/"
	mux.HandleFunc("GET "+prefix+"invocation/next", func(w http.ResponseWriter, r *http.Request) { f.serveNext(ctx, w, r) })
	mux.HandleFunc("POST "+prefix+"invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) { f.take(t, w, r, false) })
	mux.HandleFunc("POST "+prefix+"invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) { f.take(t, w, r, true) })
	mux.HandleFunc("POST "+prefix+"init/error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	server := httptest.NewServer(mux)
	cmd.Env = append(cmd.Env, "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"), "AWS_LAMBDA_FUNCTION_NAME=test", "_HANDLER=bootstrap")
	cmd.Stdout, cmd.Stderr = f.output, f.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.process = cmd.Process
	go func() {
		_ = cmd.Wait() // the output shows how it ended
		close(f.exited)
	}()
	t.Cleanup(func() {
		f.kill()
		<-f.exited
		cancel()
		server.CloseClientConnections()
		server.Close()
		if t.Failed() {
			t.Logf("the function's output:\n%s", f.Output())
		}
	})
	return f
}

func (f *Function) serveNext(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	f.once.Do(func() { close(f.ready) })
	select {
	case <-ctx.Done():
	case <-r.Context().Done():
	case inv := <-f.next:
		f.mu.Lock()
		f.open[inv.id] = inv
		f.mu.Unlock()
		h := w.Header()
		h.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(f.limit).UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-central-1:123456789012:function:test")
		h.Set("Lambda-Runtime-Trace-Id", "Root="+inv.trace)
		h.Set("Content-Type", "application/json")
		_, _ = w.Write(inv.event) // Invoke detects that the function has ended
	}
}

func (f *Function) take(t testing.TB, w http.ResponseWriter, r *http.Request, failed bool) {
	f.mu.Lock()
	inv := f.open[r.PathValue("id")]
	delete(f.open, r.PathValue("id"))
	f.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if inv == nil || err != nil {
		t.Errorf("unexpected answer to invocation %q: %v", r.PathValue("id"), err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a := answer{body: body}
	switch {
	case len(body) > MaxPayload:
		inv.answer <- answer{err: &Failure{Type: ResponseTooLarge,
			Message: fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", MaxPayload)}}
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	case failed:
		failure := &Failure{}
		if err := json.Unmarshal(body, failure); err != nil {
			t.Errorf("the function reported an error that is not JSON: %s", body)
		}
		a = answer{err: failure}
	}
	inv.answer <- a
	w.WriteHeader(http.StatusAccepted)
}

// ErrExited reports that the process ended before it answered.
var ErrExited = errors.New("the function's process has ended")

// Invoke passes the event to the function as JSON and returns its answer. The error is a *Failure
// if the function answered with an error or Lambda ended the invocation, ErrPayload if the event is too
// large, and ErrExited if the function's process ended.
func (f *Function) Invoke(ctx context.Context, event any) ([]byte, error) {
	return f.InvokeTraced(ctx, NewTrace(), event)
}

// NewTrace returns a root of X-Ray that no other invocation has.
func NewTrace() string {
	id := ulid.Make()
	return fmt.Sprintf("1-%x-%x", id[:4], id[4:])
}

// InvokeTraced is Invoke with a root of NewTrace. Each request of the invocation to AWS has the root
// in its header X-Amzn-Trace-Id.
func (f *Function) InvokeTraced(ctx context.Context, trace string, event any) ([]byte, error) {
	var encoded bytes.Buffer
	e := json.NewEncoder(&encoded)
	e.SetEscapeHTML(false) // as AWS encodes it; the size counts
	if err := e.Encode(event); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	body := bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))
	if len(body) > MaxPayload {
		return nil, ErrPayload
	}
	inv := &invocation{id: ulid.Make().String(), trace: trace, event: body, answer: make(chan answer, 1)}
	select {
	case f.next <- inv:
	case <-f.exited:
		return nil, ErrExited
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	deadline := time.NewTimer(f.limit)
	defer deadline.Stop()
	select {
	case a := <-inv.answer:
		return a.body, a.err
	case <-deadline.C:
		f.kill() // Lambda starts another environment for the next invocation
		return nil, &Failure{Type: TimedOut, Message: fmt.Sprintf("Task timed out after %.2f seconds", f.limit.Seconds())}
	case <-f.exited:
		return nil, ErrExited
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ready returns a channel that is closed when the function asks for its first invocation.
func (f *Function) Ready() <-chan struct{} { return f.ready }

// Exited returns a channel that is closed when the process has ended.
func (f *Function) Exited() <-chan struct{} { return f.exited }

// CPU returns the processor time that the process has used so far.
func (f *Function) CPU() (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", f.process.Pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// Output returns the output of the function so far.
func (f *Function) Output() string { return f.output.String() }

// output collects what a process writes. Safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
