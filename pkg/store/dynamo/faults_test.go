package dynamo_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// proxy forwards the requests of an engine to a server. The function before gets each
// request with the name of its operation, and may answer the request itself. The function
// after runs when the server has answered, and may drop the response.
type proxy struct {
	t      *testing.T
	server string
	before func(op string, w http.ResponseWriter, body []byte) (answered bool)
	after  func(op string) (lost bool)

	mu    sync.Mutex
	calls map[string]int
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	p.mu.Lock()
	p.calls[op]++
	p.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Error(err)
	}
	if p.before != nil && p.before(op, w, body) {
		return
	}
	header, answer, status := p.forward(r.Header, body)
	if p.after != nil && p.after(op) {
		panic(http.ErrAbortHandler) // the connection breaks
	}
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the engine may have closed the connection
}

func (p *proxy) forward(header http.Header, body []byte) (http.Header, []byte, int) {
	req, err := http.NewRequest(http.MethodPost, p.server, bytes.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return nil, nil, http.StatusBadGateway
	}
	req.Header = header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Error(err)
		return nil, nil, http.StatusBadGateway
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Error(err)
	}
	return resp.Header, answer, resp.StatusCode
}

func (p *proxy) count(op string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[op]
}

// engine starts the proxy and returns an engine that connects through it.
func (p *proxy) engine(t *testing.T, cfg aws.Config, name string) *dynamo.Engine {
	t.Helper()
	p.t, p.server, p.calls = t, aws.ToString(cfg.BaseEndpoint), make(map[string]int)
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	cfg.BaseEndpoint = &s.URL
	return dynamo.New(cfg, name)
}

// unreachable returns a configuration without a server, for tests whose requests must not
// reach a server.
func unreachable() aws.Config {
	return aws.Config{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String("http://127.0.0.1:1"),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
}

// refuse writes an error response in DynamoDB's format.
func refuse(w http.ResponseWriter, status int, kind, rest string) bool {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"no"%s}`, kind, rest)
	return true
}

func write(sort string, cond engine.Precondition) engine.Write {
	return engine.Write{Item: engine.Item{Key: engine.Key{Partition: "p", Sort: sort}, Body: []byte(sort)}, If: cond}
}

func wantKind(t *testing.T, err error, kind fairlead.Kind, code fairlead.Code) {
	t.Helper()
	if fairlead.KindOf(err) != kind || fairlead.CodeOf(err) != code {
		t.Errorf("got %v (kind %q, code %q), want kind %q, code %q", err, fairlead.KindOf(err), fairlead.CodeOf(err), kind, code)
	}
}

// forgetTokens gives each request another token. So DynamoDB does not recognise a repeat.
// The same is true ten minutes after a commit. Then only the token on the items shows the
// repeat.
func forgetTokens(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("forget", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		if p, ok := in.Parameters.(*dynamodb.TransactWriteItemsInput); ok {
			p.ClientRequestToken = aws.String(rand.Text())
		}
		return next.HandleInitialize(ctx, in)
	}), middleware.Before)
}

func TestRepeatIsRecognisedByTheItemsToken(t *testing.T) {
	cfg, name := table(t)
	cfg.APIOptions = append(cfg.APIOptions, forgetTokens)
	e := dynamo.New(cfg, name)
	commit := []engine.Write{
		write("a", engine.Absent()), write("b", engine.Any()),
		{Op: engine.Delete, Item: engine.Item{Key: engine.Key{Partition: "p", Sort: "c"}}, If: engine.Any()},
	}
	for range 3 {
		if err := e.Commit(t.Context(), "token", commit...); err != nil {
			t.Fatal(err)
		}
	}
	for _, sort := range []string{"a", "b"} {
		if it, err := e.Get(t.Context(), engine.Key{Partition: "p", Sort: sort}); err != nil || it.Version != 1 {
			t.Errorf("%s: version %d, %v: it was written twice", sort, it.Version, err)
		}
	}
	// In the meantime, another commit writes one of the two items.
	if err := e.Commit(t.Context(), "other", write("b", engine.Version(1))); err != nil {
		t.Fatal(err)
	}
	err := e.Commit(t.Context(), "token", commit...)
	if c, conflict := errors.AsType[*engine.ConflictError](err); !conflict || c.Key.Sort != "a" {
		t.Errorf("got %v, want a conflict at a", err)
	}
}

func TestCommitSurvivesLostResponses(t *testing.T) {
	cfg, name := table(t)
	stored := write("stored", engine.Absent())
	if err := dynamo.New(cfg, name).Commit(t.Context(), rand.Text(), stored); err != nil {
		t.Fatal(err)
	}
	del := func(cond engine.Precondition) engine.Write {
		return engine.Write{Op: engine.Delete, Item: engine.Item{Key: stored.Item.Key}, If: cond}
	}
	for _, c := range []struct {
		what   string
		writes []engine.Write
	}{
		{"of one write", []engine.Write{write("one", engine.Absent())}},
		{"of several writes", []engine.Write{write("two", engine.Absent()), write("three", engine.Absent())}},
		{"with a conditional delete, which must recognise its own delete", []engine.Write{del(engine.Version(1))}},
		{"with a delete of an item that may be missing", []engine.Write{del(engine.Any())}},
	} {
		lost := 0
		p := &proxy{after: func(string) bool { lost++; return lost <= 2 }}
		e := p.engine(t, cfg, name)
		if err := e.Commit(t.Context(), rand.Text(), c.writes...); err != nil {
			t.Errorf("commit %s, whose response was lost twice: %v", c.what, err)
		}
		for _, w := range c.writes {
			it, err := e.Get(t.Context(), w.Item.Key)
			if w.Op == engine.Delete && !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("commit %s: got %v, want no item", c.what, err)
			}
			if w.Op == engine.Put && (err != nil || it.Version != 1) {
				t.Errorf("commit %s: version %d, %v", c.what, it.Version, err)
			}
		}
	}
}

// A connection can break although the client and the server get no error.
func TestRequestWithoutResponseIsRetried(t *testing.T) {
	silent := make(chan struct{})
	p := &proxy{}
	p.before = func(op string, w http.ResponseWriter, _ []byte) bool {
		if p.count(op) == 1 {
			<-silent
			return true
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, "{}")
		return true
	}
	cfg := unreachable()
	cfg.HTTPClient = awshttp.NewBuildableClient().WithTimeout(300 * time.Millisecond)
	e := p.engine(t, cfg, "t")
	t.Cleanup(func() { close(silent) }) // before the proxy is closed
	if _, err := e.Get(t.Context(), engine.Key{Partition: "p", Sort: "s"}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("got %v, want the second response", err)
	}
	if n := p.count("GetItem"); n < 2 {
		t.Errorf("the engine sent %d requests, want a retry after the timeout", n)
	}
}

func TestTransientRefusalsAreRetried(t *testing.T) {
	cfg, name := table(t)
	conflict := `,"CancellationReasons":[{"Code":"None"},{"Code":"TransactionConflict","Message":"no"}]`
	for i, c := range []struct {
		what, kind, rest string
		status           int
	}{
		{"another transaction holds an item", "TransactionCanceledException", conflict, 400},
		{"a transaction holds the item of a write", "TransactionConflictException", "", 400},
		{"the table is throttled", "ProvisionedThroughputExceededException", "", 400},
		{"the account is throttled", "ThrottlingException", "", 400},
		{"the same transaction is still running", "TransactionInProgressException", "", 400},
		{"the service has an internal error", "InternalServerError", "", 500},
	} {
		refusals := 0
		p := &proxy{before: func(_ string, w http.ResponseWriter, _ []byte) bool {
			if refusals++; refusals > 3 {
				return false
			}
			return refuse(w, c.status, c.kind, c.rest)
		}}
		e := p.engine(t, cfg, name)
		err := e.Commit(t.Context(), rand.Text(), write(fmt.Sprint(i, "a"), engine.Absent()), write(fmt.Sprint(i, "b"), engine.Absent()))
		if err != nil || p.count("TransactWriteItems") != 4 {
			t.Errorf("%s: %v after %d requests, want success after 4", c.what, err, p.count("TransactWriteItems"))
		}
	}
}

func TestCommitGivesUpAfterEightRefusals(t *testing.T) {
	p := &proxy{before: func(_ string, w http.ResponseWriter, _ []byte) bool {
		return refuse(w, 400, "TransactionCanceledException", `,"CancellationReasons":[{"Code":"ThrottlingError"},{"Code":"None"}]`)
	}}
	e := p.engine(t, unreachable(), "t")
	err := e.Commit(t.Context(), "token", write("a", engine.Absent()), write("b", engine.Absent()))
	wantKind(t, err, fairlead.KindUnavailable, "store-unavailable")
	if n := p.count("TransactWriteItems"); n != 8 {
		t.Errorf("the engine gave up after %d requests, want 8", n)
	}
}

func TestUnreachableServerIsUnavailable(t *testing.T) {
	_, err := dynamo.New(unreachable(), "t").Get(t.Context(), engine.Key{Partition: "p", Sort: "s"})
	wantKind(t, err, fairlead.KindUnavailable, "store-unavailable")
}

func TestPermanentRefusalsAreNotRetried(t *testing.T) {
	for _, c := range []struct {
		what, kind, rest string
		wantCode         fairlead.Code
	}{
		{"the request is invalid", "ValidationException", "", ""},
		{"one write of the transaction is invalid", "TransactionCanceledException",
			`,"CancellationReasons":[{"Code":"ValidationError"},{"Code":"TransactionConflict"}]`, ""},
		{"the table does not exist", "ResourceNotFoundException", "", "table-missing"},
		{"the token was used for another commit", "IdempotentParameterMismatchException", "", "token-reused"},
	} {
		p := &proxy{before: func(_ string, w http.ResponseWriter, _ []byte) bool { return refuse(w, 400, c.kind, c.rest) }}
		e := p.engine(t, unreachable(), "t")
		err := e.Commit(t.Context(), "token", write("a", engine.Absent()), write("b", engine.Absent()))
		wantKind(t, err, fairlead.KindInternal, c.wantCode)
		if n := p.count("TransactWriteItems"); n != 1 {
			t.Errorf("%s: %d requests, want 1", c.what, n)
		}
	}
}

func TestFailedConditionBeatsTransactionConflict(t *testing.T) {
	p := &proxy{before: func(op string, w http.ResponseWriter, _ []byte) bool {
		return refuse(w, 400, "TransactionCanceledException",
			`,"CancellationReasons":[{"Code":"TransactionConflict"},{"Code":"ConditionalCheckFailed"}]`)
	}}
	e := p.engine(t, unreachable(), "t")
	err := e.Commit(t.Context(), "token", write("a", engine.Absent()), write("b", engine.Version(3)))
	if c, ok := errors.AsType[*engine.ConflictError](err); !ok || c.Key.Sort != "b" || c.Current != nil {
		t.Errorf("got %v, want a conflict at b: a retry would not help", err)
	}
}

func TestTokenOfAnotherCommitIsRefused(t *testing.T) {
	cfg, name := table(t)
	e := dynamo.New(cfg, name)
	token := rand.Text() // must be unique, because the server keeps one set of tokens for all its tables
	if err := e.Commit(t.Context(), token, write("a", engine.Absent()), write("b", engine.Absent())); err != nil {
		t.Fatal(err)
	}
	err := e.Commit(t.Context(), token, write("c", engine.Absent()), write("d", engine.Absent()))
	wantKind(t, err, fairlead.KindInternal, "token-reused")
}

func TestMissingTableHasItsOwnCode(t *testing.T) {
	cfg, _ := table(t)
	e := dynamo.New(cfg, "no-such-table")
	_, err := e.Get(t.Context(), engine.Key{Partition: "p", Sort: "s"})
	wantKind(t, err, fairlead.KindInternal, "table-missing")
	_, err = e.Query(t.Context(), engine.Query{Index: engine.Due, Partition: "p"})
	wantKind(t, err, fairlead.KindInternal, "table-missing")
}

// An index lags, so it can have entries of deleted items. DynamoDB can also return only a
// part of a batch.
func TestIndexReadsKeepOrderInPartialBatches(t *testing.T) {
	cfg, name := table(t)
	plain := dynamo.New(cfg, name)
	var writes []engine.Write
	for i := range 30 {
		w := write(fmt.Sprintf("%02d", (i*7)%30), engine.Absent())
		w.Item.List = &engine.Key{Partition: "l", Sort: w.Item.Key.Sort}
		writes = append(writes, w)
	}
	if err := plain.Commit(t.Context(), rand.Text(), writes...); err != nil {
		t.Fatal(err)
	}
	gone := engine.Key{Partition: "p", Sort: "11"}
	first := true
	p := &proxy{}
	p.before = func(op string, w http.ResponseWriter, body []byte) bool {
		if op != "BatchGetItem" {
			return false
		}
		if first { // after the read of the index, before the read of the table
			first = false
			if err := plain.Commit(t.Context(), "gone", engine.Write{Op: engine.Delete, Item: engine.Item{Key: gone}, If: engine.Version(1)}); err != nil {
				t.Error(err)
			}
		}
		return p.answerSome(w, body, name, 4)
	}
	e := p.engine(t, cfg, name)
	page, err := e.Query(t.Context(), engine.Query{Index: engine.List, Partition: "l"})
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, it := range page.Items {
		got = append(got, it.Key.Sort)
	}
	for i := range 30 {
		if s := fmt.Sprintf("%02d", i); s != gone.Sort {
			want = append(want, s)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if n := p.count("BatchGetItem"); n != 8 { // ⌈30/4⌉
		t.Errorf("%d batches were read, want 8", n)
	}
}

// answerSome answers a batch: it reads the first n keys, and returns the other keys as
// unprocessed.
func (p *proxy) answerSome(w http.ResponseWriter, body []byte, table string, n int) bool {
	type batch struct {
		Keys           []json.RawMessage
		ConsistentRead bool
	}
	var in struct{ RequestItems map[string]batch }
	if err := json.Unmarshal(body, &in); err != nil {
		p.t.Error(err)
	}
	asked := in.RequestItems[table]
	if !asked.ConsistentRead {
		p.t.Error("the batch is not read with strong consistency")
	}
	left := asked
	left.Keys = asked.Keys[min(n, len(asked.Keys)):]
	asked.Keys = asked.Keys[:min(n, len(asked.Keys))]
	var out map[string]any
	if len(asked.Keys) > 0 {
		in.RequestItems[table] = asked
		b, err := json.Marshal(in)
		if err != nil {
			p.t.Error(err)
		}
		header := http.Header{
			"X-Amz-Target":  {"DynamoDB_20120810.BatchGetItem"},
			"Content-Type":  {"application/x-amz-json-1.0"},
			"Authorization": {"AWS4-HMAC-SHA256 Credential=test/20261120/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"},
		}
		_, answer, status := p.forward(header, b)
		if err := json.Unmarshal(answer, &out); err != nil || status != 200 {
			p.t.Errorf("status %d, %v: %s", status, err, answer)
		}
	} else {
		out = map[string]any{"Responses": map[string]any{}}
	}
	if len(left.Keys) > 0 {
		out["UnprocessedKeys"] = map[string]any{table: left}
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		p.t.Error(err)
	}
	return true
}

func TestUnreadBatchIsUnavailable(t *testing.T) {
	cfg, name := table(t)
	w := write("a", engine.Absent())
	w.Item.Due = &engine.Key{Partition: "d", Sort: "1"}
	p := &proxy{}
	p.before = func(op string, w http.ResponseWriter, body []byte) bool {
		return op == "BatchGetItem" && p.answerSome(w, body, name, 0)
	}
	e := p.engine(t, cfg, name)
	if err := e.Commit(t.Context(), "token", w); err != nil {
		t.Fatal(err)
	}
	_, err := e.Query(t.Context(), engine.Query{Index: engine.Due, Partition: "d"})
	wantKind(t, err, fairlead.KindUnavailable, "store-unavailable")
	if n := p.count("BatchGetItem"); n != 8 {
		t.Errorf("the engine gave up after %d batches, want 8", n)
	}
}

func TestRetryStopsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &proxy{before: func(_ string, w http.ResponseWriter, _ []byte) bool {
		cancel()
		return refuse(w, 400, "ThrottlingException", "")
	}}
	e := p.engine(t, unreachable(), "t")
	if err := e.Commit(ctx, "token", write("a", engine.Absent())); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
