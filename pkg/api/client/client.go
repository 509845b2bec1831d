// Package client calls the control API and the runner API over HTTP. Its
// requests and answers are those of package wire, so it cannot drift from the
// server; it imports nothing else of this module.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/transport"
)

// The largest answers that are read, in bytes. A saved plan holds the
// configuration and all that it refers to, a state all that was made; everything
// else is small.
const (
	maxAnswer = 32 << 20
	maxLarge  = 128 << 20
)

func limit(r wire.Route) int64 {
	if r.ID == wire.GetPlan.ID || r.ID == wire.GetState.ID {
		return maxLarge
	}
	return maxAnswer
}

// Options of a Client; the zero value is useful.
type Options struct {
	HTTP      *http.Client // transport; nil: one with sane limits; redirects are never followed
	UserAgent string       // "": "fairlead"
	// CA is what the control plane's certificate is signed by, in PEM, beside what
	// this machine trusts; it is not used with HTTP.
	CA string
	// PlainHTTP allows a control plane on another machine without TLS. Otherwise New
	// returns a *transport.PlainError.
	PlainHTTP bool
	Retries   int           // further tries after a failure that may pass; 0: 4, negative: none
	MaxWait   time.Duration // longest pause between two tries, whatever the server asks for; 0: 2 s
	// Random draws a number in [0, 1), which varies pauses; safe for concurrent
	// use. nil: math/rand.
	Random func() float64
}

// Client calls one control plane with one token. Safe for concurrent use.
type Client struct {
	base  *url.URL
	token string
	agent string
	http  *retryablehttp.Client
}

// New returns a client of the control plane at baseURL.
func New(baseURL, token string, o Options) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(baseURL, "/"))
	switch {
	case err == nil && (base.User != nil || base.RawQuery != "" || base.Fragment != ""):
		// Not repeated: it may hold a password.
		return nil, errors.New("the URL of a control plane holds no user, query or fragment; a token is given by itself")
	case err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https"):
		return nil, fmt.Errorf("%q is not the URL of a control plane: it begins with https:// or http://", baseURL)
	}
	if err := transport.CheckPlain(base, o.PlainHTTP); err != nil {
		return nil, err
	}
	rc := retryablehttp.NewClient()
	rc.Logger = nil
	hc := http.Client{}
	if o.HTTP != nil {
		hc = *o.HTTP
	} else {
		t, err := transport.New(o.CA)
		if err != nil {
			return nil, fmt.Errorf("what the control plane's certificate is signed by: %w", err)
		}
		hc.Transport = t
	}
	// Neither API redirects. Whoever does is not the control plane, and must
	// not be sent a token or be believed when it answers a POST made a GET.
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	rc.HTTPClient = &hc
	rc.RetryMax = o.Retries
	if o.Retries == 0 {
		rc.RetryMax = 4
	} else if o.Retries < 0 {
		rc.RetryMax = 0
	}
	rc.RetryWaitMin = 50 * time.Millisecond // 50, 100, 200, … ms: a restarted server is back within the first few
	rc.RetryWaitMax = 2 * time.Second
	if o.MaxWait > 0 {
		rc.RetryWaitMax = o.MaxWait
	}
	rc.CheckRetry = checkRetry
	random := o.Random
	if random == nil {
		random = mathrand.Float64
	}
	rc.Backoff = func(shortest, longest time.Duration, attempt int, res *http.Response) time.Duration {
		return backoff(shortest, longest, attempt, res, random())
	}
	rc.ErrorHandler = retryablehttp.PassthroughErrorHandler
	agent := o.UserAgent
	if agent == "" {
		agent = "fairlead"
	}
	return &Client{base: base, token: token, agent: agent, http: rc}, nil
}

// once marks the context of a request that must not be repeated when it may
// have been carried out.
type once struct{}

// checkRetry retries what never reached the server, what it asked to have
// repeated, and what was answered by nobody or by half. Requests of ours may
// be repeated: creating ones carry an idempotency key, the others are
// idempotent by themselves; those that are not are marked with once.
func checkRetry(ctx context.Context, res *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	again := ctx.Value(once{}) == nil
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); !again && !(ok && op.Op == "dial") {
			return false, nil
		}
		return retryablehttp.DefaultRetryPolicy(ctx, res, err)
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true, nil
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return again, nil // a proxy does not know whether it was carried out
	}
	return false, nil
}

// throttled is how much longer the first pause is when the server has too much
// to do: whoever comes back at once makes it more.
const throttled = 10

// backoff doubles the pause from shortest on, varied by up to a half, by the
// random number: callers that were refused together must not come back
// together. A server may ask for another pause, up to longest, which is then the
// least: it must not put a caller to sleep for an hour.
func backoff(shortest, longest time.Duration, attempt int, res *http.Response, random float64) time.Duration {
	busy := res != nil && (res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable)
	asked := busy && res.Header.Get("Retry-After") != ""
	if busy && !asked {
		shortest = min(throttled*shortest, longest)
	}
	d := min(retryablehttp.DefaultBackoff(shortest, longest, attempt, res), longest)
	if asked {
		return d + time.Duration(random*float64(d)/2)
	}
	return d/2 + time.Duration(random*float64(d))
}

// WithToken returns a client that differs in its token only.
func (c *Client) WithToken(token string) *Client {
	d := *c
	d.token = token
	return &d
}

// URL returns the control plane's URL.
func (c *Client) URL() string { return c.base.String() }

// Transport returns how the control plane is reached, and so its registry.
func (c *Client) Transport() http.RoundTripper { return c.http.HTTPClient.Transport }

// Token returns the token that the client sends.
func (c *Client) Token() string { return c.token }

// Error is a refusal: by the control plane, or by what is between here and there,
// which Foreign tells apart.
type Error struct {
	wire.Problem
	Operation string // operation id of the route
}

// Code returns the last segment of the problem's type, such as "stale-epoch".
func (e *Error) Code() string { return strings.TrimPrefix(e.Type, wire.ProblemType) }

func (e *Error) Error() string {
	msg := e.Detail
	if msg == "" {
		msg = e.Title
	}
	for _, f := range e.Errors {
		msg += "; " + strings.TrimSpace(f.Location+" "+f.Message)
	}
	return msg
}

// Foreign reports whether the answer is not the word of the control plane that
// was asked. A proxy, a firewall, an ingress whose backend is gone or a gateway
// (API Gateway says 403 and 404, too) answers with a status of its own choice and
// without a problem of ours; the request has most likely not arrived. So it is
// with a control plane that has nothing at the path: it is of another version, or
// another one altogether, and does not know what it was asked about.
func (e *Error) Foreign() bool {
	code, ours := strings.CutPrefix(e.Type, wire.ProblemType)
	return !ours || code == "" || code == "no-route" || code == "method-not-allowed"
}

// Refused reports whether err is the control plane's own refusal, which it would
// repeat: it is neither at fault nor busy. A code that this client does not know
// counts by its status. Whoever gives something up because of a refusal asks this,
// and not for a status: anybody can say 404.
func Refused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && !e.Foreign() && e.Status >= 400 && e.Status < 500 &&
		e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// UnreachableError says that the control plane did not answer.
type UnreachableError struct {
	URL string
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the control plane at %s does not answer: %v", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// HasCode reports whether err is a refusal with the given code, such as a
// fairlead.Code.
func HasCode[Code ~string](err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code() == string(code)
}

// HasStatus reports whether err is a refusal with the given HTTP status, by
// whomever: see Refused.
func HasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// call describes one request.
type call struct {
	route  wire.Route
	path   map[string]string
	query  url.Values
	in     any               // sent as JSON unless raw is set
	raw    []byte            // sent as it is
	key    string            // idempotency key; "": none
	header map[string]string // more of them
	once   bool              // not repeated when it may have been carried out
	next   func(string)      // of a page: as ListOptions has it
	user   string            // sent with the token as basic authentication; "": the token is a bearer's
}

// do sends the request and decodes a JSON answer into out, if that is not
// nil. It reports whether there was a body (204 has none).
func (c *Client) do(ctx context.Context, k call, out any) (bool, error) {
	body, err := c.send(ctx, k)
	if err != nil || len(body) == 0 {
		return false, err
	}
	if out == nil {
		out = new(json.RawMessage) // a page of HTML must not pass for success
	}
	if err := json.Unmarshal(body, out); err != nil {
		return false, fmt.Errorf("%s: the control plane answered with something else than its API: %w", k.route.ID, err)
	}
	return true, nil
}

// send sends the request, again if need be, and returns the whole answer: nil if
// the server has said that there is nothing (204).
func (c *Client) send(ctx context.Context, k call) ([]byte, error) {
	if k.once {
		ctx = context.WithValue(ctx, once{}, true)
	}
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.route.ID, err)
	}
	var body []byte
	var tooLarge bool
	read := func(res *http.Response) error {
		defer res.Body.Close()
		if cursor := wire.NextCursor(res.Header.Values(wire.HeaderLink)); cursor != "" && k.next != nil && res.StatusCode < 300 {
			k.next(cursor)
		}
		if tooLarge = res.ContentLength > limit(k.route); tooLarge {
			body = []byte{}
			return nil
		}
		b, err := io.ReadAll(io.LimitReader(res.Body, limit(k.route)+1))
		if err == nil {
			body = b
		}
		return err
	}
	req.SetResponseHandler(read) // an answer that breaks off is none, and asked for again
	res, err := c.http.Do(req)
	if err == nil && body == nil {
		err = read(res) // the last of several refusals
	}
	if err != nil {
		if res != nil {
			res.Body.Close()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return nil, &UnreachableError{URL: c.base.String(), Err: err}
	}
	if tooLarge || int64(len(body)) > limit(k.route) {
		return nil, fmt.Errorf("%s: the answer is larger than %d bytes", k.route.ID, limit(k.route))
	}
	switch {
	case res.StatusCode >= 300:
		return nil, problem(k.route.ID, res, body)
	case res.StatusCode == http.StatusNoContent:
		return nil, nil
	}
	return body, nil
}

func (c *Client) request(ctx context.Context, k call) (*retryablehttp.Request, error) {
	path := k.route.Path
	for name, value := range k.path {
		if value == "" || value == "." || value == ".." {
			return nil, fmt.Errorf("%q names no %s", value, name) // it would make another route of this one
		}
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(value), 1)
	}
	u := c.base.String() + path
	if len(k.query) > 0 {
		u += "?" + k.query.Encode()
	}
	payload, contentType := k.raw, "application/octet-stream"
	if k.in != nil {
		b, err := json.Marshal(k.in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		payload, contentType = b, "application/json"
	}
	var rd any
	if payload != nil {
		rd = bytes.NewReader(payload)
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, k.route.Method, u, rd)
	if err != nil {
		return nil, err
	}
	if payload != nil {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set(wire.HeaderProtocol, wire.Protocol)
	switch {
	case k.user != "":
		req.SetBasicAuth(k.user, c.token)
	case c.token != "":
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, value := range k.header {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if k.key != "" {
		req.Header.Set(wire.HeaderIdempotencyKey, k.key)
	}
	return req, nil
}

// problem makes an error of a refusal. The status of the answer counts, not
// the one that its body may repeat.
func problem(operation string, res *http.Response, body []byte) error {
	e := &Error{Operation: operation}
	mt, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if mt != "application/problem+json" || json.Unmarshal(body, &e.Problem) != nil {
		e.Problem = wire.Problem{Title: http.StatusText(res.StatusCode),
			Detail: fmt.Sprintf("the server answered %s without saying why; is this the URL of a control plane?", res.Status)}
	}
	e.Status = res.StatusCode
	if e.RequestID == "" {
		e.RequestID = res.Header.Get(wire.HeaderRequestID)
	}
	return e
}

// NewIdempotencyKey returns a key for one creating request and its retries.
func NewIdempotencyKey() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}

// get sends the call and decodes the answer, which there must be.
func get[T any](ctx context.Context, c *Client, k call) (T, error) {
	var out T
	err := c.get(ctx, k, &out)
	return out, err
}

func (c *Client) get(ctx context.Context, k call, out any) error {
	ok, err := c.do(ctx, k, out)
	if err == nil && !ok {
		err = fmt.Errorf("%s: the control plane answered with nothing", k.route.ID)
	}
	return err
}
