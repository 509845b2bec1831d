package awstest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/fairlead/fairlead/functions/internal/runtimetest"
)

// use is what the invocations of a function for one purpose used. Package bench makes prices of it.
type use struct {
	Count  int            `json:"count"`            // invocations
	CPU    float64        `json:"cpu_ms,omitempty"` // processor time of the functions' processes on this machine
	Sent   int            `json:"sent,omitempty"`   // bytes of the bodies of responses
	Logged int            `json:"logged,omitempty"` // bytes that the functions log
	Lines  int            `json:"lines,omitempty"`  // lines that the functions log
	Calls  map[string]int `json:"calls,omitempty"`  // requests to AWS, by service and operation
	Events int            `json:"events,omitempty"` // sent to the bus

	// Units of DynamoDB, of all tables but that of logs, and of the table of logs.
	Writes    float64 `json:"writes,omitempty"`
	Reads     float64 `json:"reads,omitempty"`
	LogWrites float64 `json:"log_writes,omitempty"`
	LogReads  float64 `json:"log_reads,omitempty"`
}

// plus returns u + n × v.
func (u use) plus(n int, v use) use {
	calls := maps.Clone(u.Calls)
	if calls == nil {
		calls = map[string]int{}
	}
	for name, count := range v.Calls {
		if calls[name] += n * count; calls[name] == 0 {
			delete(calls, name)
		}
	}
	f := float64(n)
	return use{u.Count + n*v.Count, u.CPU + f*v.CPU, u.Sent + n*v.Sent, u.Logged + n*v.Logged, u.Lines + n*v.Lines, calls, u.Events + n*v.Events,
		u.Writes + f*v.Writes, u.Reads + f*v.Reads, u.LogWrites + f*v.LogWrites, u.LogReads + f*v.LogReads}
}

// meter counts what the invocations of an account's functions use: requests of the API by route, and
// the others by function. The SDK sends the trace of an invocation with each request to AWS, so the
// meter knows which invocation a request belongs to. Safe for concurrent use.
type meter struct {
	t testing.TB

	mu     sync.Mutex
	uses   map[string]use    // by route or function
	traced map[string]string // keys of uses, by trace
}

func newMeter(t testing.TB) *meter {
	return &meter{t: t, uses: map[string]use{}, traced: map[string]string{}}
}

// look returns what was used so far.
func (m *meter) look() map[string]use {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]use{}
	for key, u := range m.uses {
		out[key] = use{}.plus(1, u)
	}
	return out
}

// since returns what was used after earlier, which look returned.
func (m *meter) since(earlier map[string]use) map[string]use {
	out := m.look()
	for key, u := range out {
		if u = u.plus(-1, earlier[key]); u.Count > 0 {
			out[key] = u
		} else {
			delete(out, key)
		}
	}
	return out
}

func (m *meter) add(key string, u use) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uses[key] = m.uses[key].plus(1, u)
}

// invoke invokes the function and counts it.
func (m *meter) invoke(name string, event any, e *runtimetest.Function, invoke func(trace string) ([]byte, error)) ([]byte, error) {
	key, trace := purpose(name, event), runtimetest.NewTrace()
	m.mu.Lock()
	m.traced[trace] = key
	m.mu.Unlock()
	before, logged := m.cpu(e), e.Output()
	out, err := invoke(trace)
	lines := strings.TrimPrefix(e.Output(), logged)
	u := use{Count: 1, CPU: float64(m.cpu(e)-before) / float64(time.Millisecond), Logged: len(lines), Lines: strings.Count(lines, "\n")}
	var answer events.APIGatewayV2HTTPResponse
	if _, isRequest := event.(events.APIGatewayV2HTTPRequest); isRequest && json.Unmarshal(out, &answer) == nil {
		u.Sent = len(answer.Body)
	}
	m.add(key, u)
	return out, err
}

func (m *meter) cpu(e *runtimetest.Function) time.Duration {
	used, err := e.CPU()
	if err != nil {
		m.t.Errorf("read the processor time of a function: %v", err)
	}
	return used
}

// purpose returns the route of a request of the API, and otherwise the function's name.
func purpose(function string, event any) string {
	r, ok := event.(events.APIGatewayV2HTTPRequest)
	if !ok {
		return function
	}
	parts := strings.Split(r.RawPath, "/")
	for i, p := range parts {
		if strings.ContainsAny(p, "_:") || i > 0 && (parts[i-1] == "installs" || parts[i-1] == "apps" || parts[i-1] == "runners") {
			parts[i] = "*" // an identifier or a name
		}
	}
	return r.RequestContext.HTTP.Method + " " + strings.Join(parts, "/")
}

// call counts a request to a service and passes it to next. It makes DynamoDB report its units.
func (m *meter) call(service string, w http.ResponseWriter, r *http.Request, body []byte, next http.Handler) {
	m.mu.Lock()
	key, known := m.traced[strings.TrimPrefix(r.Header.Get("X-Amzn-Trace-Id"), "Root=")]
	m.mu.Unlock()
	pass := func() {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	}
	if !known { // a runner or a step
		pass()
		return
	}
	what := operation(r)
	if service == "STS" {
		form, _ := url.ParseQuery(string(body)) // STS refuses what it cannot read
		what = form.Get("Action")
	}
	u, done := use{Calls: map[string]int{service + " " + what: 1}}, func() {}
	switch service {
	case "DYNAMODB":
		body = withUnits(body)
		answer := &teed{ResponseWriter: w}
		w, done = answer, func() { u.addUnits(what, answer.body.Bytes()) }
	case "EVENTBRIDGE":
		var in struct{ Entries []json.RawMessage }
		_ = json.Unmarshal(body, &in) // another request has no entries
		u.Events = len(in.Entries)
	}
	pass()
	done()
	m.add(key, u)
}

// calls counts a request that no SDK traced.
func (m *meter) calls(key, what string) { m.add(key, use{Calls: map[string]int{what: 1}}) }

// sts counts the requests to STS and passes them to next. A session's function sends the agent's
// signed request for its identity, which has no trace.
func (m *meter) sts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		if bytes.Contains(body, []byte("Action=GetCallerIdentity")) {
			m.calls(sessionsRoute, "STS GetCallerIdentity")
		}
		m.call("STS", w, r, body, next)
	})
}

// sessionsRoute is the route by which agents open and renew sessions.
const sessionsRoute = "POST /runner/v1/sessions"

// teed keeps the body of a response.
type teed struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (t *teed) Write(p []byte) (int, error) {
	t.body.Write(p)
	return t.ResponseWriter.Write(p)
}

// withUnits makes a request to DynamoDB ask for its units.
func withUnits(body []byte) []byte {
	var in map[string]json.RawMessage
	if json.Unmarshal(body, &in) != nil {
		return body
	}
	in["ReturnConsumedCapacity"] = json.RawMessage(`"INDEXES"`)
	out, err := json.Marshal(in)
	if err != nil {
		return body
	}
	return out
}

// addUnits adds the units in DynamoDB's answer. A conflict reports none.
func (u *use) addUnits(operation string, answer []byte) {
	type consumed struct {
		TableName              string
		CapacityUnits          float64
		Table                  struct{ CapacityUnits float64 }
		GlobalSecondaryIndexes map[string]struct{ CapacityUnits float64 }
	}
	var one struct{ ConsumedCapacity consumed }
	var many struct{ ConsumedCapacity []consumed }
	_ = json.Unmarshal(answer, &one)  // one of the two
	_ = json.Unmarshal(answer, &many) // fits
	if one.ConsumedCapacity.TableName != "" {
		many.ConsumedCapacity = append(many.ConsumedCapacity, one.ConsumedCapacity)
	}
	writes := slices.ContainsFunc([]string{"Put", "Update", "Delete", "Transact", "BatchWrite"}, func(w string) bool { return strings.HasPrefix(operation, w) })
	for _, c := range many.ConsumedCapacity {
		n := c.CapacityUnits
		switch {
		case operation == "TransactWriteItems":
			// DynamoDB Local counts an index's entry four times in a transaction; AWS counts it once, as package enginetest explains.
			n = c.Table.CapacityUnits
			for _, index := range c.GlobalSecondaryIndexes {
				n += index.CapacityUnits / 4
			}
		case operation == "Query" && n == 0:
			n = 0.5 // DynamoDB Local counts nothing for an empty query; AWS counts the least read
		}
		to, isLog := &u.Reads, strings.HasSuffix(c.TableName, "-LogTable")
		switch {
		case writes && isLog:
			to = &u.LogWrites
		case writes:
			to = &u.Writes
		case isLog:
			to = &u.LogReads
		}
		*to += n
	}
}
