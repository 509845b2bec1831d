// Package client calls the control API and the runner API over HTTP. It takes the
// requests and answers from package wire, as the server does, so the two cannot differ.
package client

import (
	"bytes"
	"cmp"
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
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/transport"
)

// The largest answers that the client reads, in bytes. Saved plans and states are
// large: a plan holds the whole configuration and the resources that it refers to, and
// a state holds all resources. So are outputs, and what a deployment would use. Other
// answers are small.
const (
	maxAnswer = 32 << 20
	maxLarge  = 128 << 20
)

func limit(r wire.Route) int64 {
	if slices.Contains([]string{wire.GetPlan.ID, wire.GetState.ID, wire.GetOutputs.ID, wire.GetInstall.ID}, r.ID) {
		return maxLarge
	}
	return maxAnswer
}

// Options of a Client. The zero value is valid.
type Options struct {
	HTTP      *http.Client // only its transport is used; nil: a transport of package transport. The client never follows redirects.
	UserAgent string       // "": "fairlead"
	// CA holds more CA certificates in PEM, in addition to those that this machine
	// trusts. It has no effect if HTTP is set.
	CA string
	// PlainHTTP permits a control plane on another machine without TLS. If PlainHTTP
	// is false, New returns a *transport.PlainError for such a control plane.
	PlainHTTP bool
	Retries   int           // retries after a temporary failure; 0: 4, negative: none
	MaxWait   time.Duration // longest pause before a retry, even if the server requests a longer one; 0: 2 s
	// Expiring is called with each answer that reports that the client's token expires soon. nil: not.
	Expiring func(time.Time)
	// Random returns a number in [0, 1) that varies the pauses. It must be safe for
	// concurrent use. nil: math/rand.
	Random func() float64
}

// Client calls one control plane with one token. Safe for concurrent use.
type Client struct {
	base  *url.URL
	token string
	agent string
	http  *retryablehttp.Client
	most  int64 // see WithMaxBody
}

// New returns a client of the control plane at baseURL.
func New(baseURL, token string, o Options) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(baseURL, "/"))
	switch {
	case err == nil && (base.User != nil || base.RawQuery != "" || base.Fragment != ""):
		// The message does not repeat the URL, which may hold a password.
		return nil, errors.New("the URL of a control plane must not have a user, query or fragment; pass the token separately")
	case err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https"):
		return nil, fmt.Errorf("%q is not the URL of a control plane: the URL must start with https:// or http:// and have a host", baseURL)
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
			return nil, fmt.Errorf("read the CA certificates for the control plane: %w", err)
		}
		hc.Transport = t
	}
	// Neither API redirects, so a server that redirects is not the control plane. The
	// client must not send the token to the target of a redirect. A redirect can also
	// turn a POST into a GET, and the client would take the answer for success.
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	rc.HTTPClient = &hc
	rc.RetryMax = o.Retries
	if o.Retries == 0 {
		rc.RetryMax = 4
	} else if o.Retries < 0 {
		rc.RetryMax = 0
	}
	rc.RetryWaitMin = 50 * time.Millisecond // 50, 100, 200, … ms: a restarted server answers after the first few
	rc.RetryWaitMax = 2 * time.Second
	if o.MaxWait > 0 {
		rc.RetryWaitMax = o.MaxWait
	}
	rc.CheckRetry = checkRetry
	if o.Expiring != nil {
		rc.ResponseLogHook = func(_ retryablehttp.Logger, res *http.Response) {
			if at, err := time.Parse(time.RFC3339, res.Header.Get(wire.HeaderTokenExpires)); err == nil {
				o.Expiring(at)
			}
		}
	}
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

// once marks the context of a request that must not be repeated if the server may
// have executed it.
type once struct{}

// checkRetry decides whether the client repeats a request. It repeats a request that
// did not reach the server, that the server asks to repeat, or that got no complete
// answer. Repetition is safe: requests that create something carry an idempotency
// key, and almost all others are idempotent. A request that has no key and is not
// idempotent is marked with once. The client repeats such a request only if the server
// has certainly not executed it.
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
		return again, nil // the proxy does not know whether the server executed the request
	}
	return false, nil
}

// throttled is the factor for the first pause if the server is overloaded: an early
// retry would add to its load.
const throttled = 10

// backoff returns the pause before the next attempt. The pause doubles from shortest
// to longest. random varies the pause by up to a half, so that clients that the server
// refused at the same time do not return at the same time. If the server requests a
// pause, the pause is at least as long as requested, but never longer than longest: no
// server may stop a client for an hour.
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

// retryAfter returns the pause that an answer requests, or 0.
func retryAfter(res *http.Response) time.Duration {
	return max(0, retryablehttp.DefaultBackoff(0, 0, 0, res)) // with pauses of 0, only that of Retry-After is left
}

// WithToken returns a copy of the client with another token.
func (c *Client) WithToken(token string) *Client {
	d := *c
	d.token = token
	return &d
}

// WithMaxBody returns a copy of the client that stages each body of more than n bytes in parts before the
// request. If n is 0, it stages none. The client's token must be a lease token.
func (c *Client) WithMaxBody(n int64) *Client {
	d := *c
	d.most = n
	return &d
}

// MaxBody returns the largest body that the client sends as a whole, in bytes; 0: every body.
func (c *Client) MaxBody() int64 { return c.most }

// URL returns the control plane's URL.
func (c *Client) URL() string { return c.base.String() }

// Transport returns the transport to the control plane. Use it for the control
// plane's registry, too.
func (c *Client) Transport() http.RoundTripper { return c.http.HTTPClient.Transport }

// Token returns the token that the client sends.
func (c *Client) Token() string { return c.token }

// Error is an HTTP answer with a status of 300 or more. It comes from the control
// plane or from a proxy in between; see Foreign.
type Error struct {
	wire.Problem
	Operation  string        // operation id of the route
	RetryAfter time.Duration // pause that the server requests in Retry-After, with 429 and 503; 0: none
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

// Foreign reports whether the answer does not come from the right control plane.
// A proxy, a firewall, an ingress without a backend or a gateway (API Gateway also
// answers 403 and 404) chooses its own status and sends no Fairlead problem. Such a
// request has most likely not reached the control plane. A control plane that does
// not have the route is foreign too: it has another version or is another control
// plane. So its 404 does not mean that the object does not exist.
func (e *Error) Foreign() bool {
	code, ours := strings.CutPrefix(e.Type, wire.ProblemType)
	return !ours || code == "" || code == "no-route" || code == "method-not-allowed"
}

// Refused reports whether err is a permanent refusal by the control plane. The control
// plane neither failed nor is it busy, so it would refuse the same request again. For
// an unknown code, the status decides. A caller that gives something up because of a
// refusal must check Refused and not the status, because any proxy can answer 404.
func Refused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && !e.Foreign() && e.Status >= 400 && e.Status < 500 &&
		e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// UnreachableError means that the control plane did not answer.
type UnreachableError struct {
	URL string
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the control plane at %s does not answer: %v", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// HasCode reports whether err is an *Error with the given code, such as a
// fairlead.Code.
func HasCode[Code ~string](err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code() == string(code)
}

// HasStatus reports whether err is an *Error with the given HTTP status. A proxy may
// have sent it: see Refused.
func HasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// call describes one request.
type call struct {
	route  wire.Route
	path   map[string]string
	query  url.Values
	in     any               // encoded as JSON into raw
	raw    []byte            // sent unchanged
	key    string            // idempotency key; "": none
	header map[string]string // further headers
	once   bool              // not repeated if the server may have executed it
	kind   string            // content type of raw; "": application/octet-stream
	next   func(string)      // for a page: see ListOptions.next
	user   string            // user of basic authentication, with the token as password; "": send the token as a bearer token
}

// do sends the request and decodes the JSON answer into out; nil discards it. It
// reports whether the answer has a body (204 has none).
func (c *Client) do(ctx context.Context, k call, out any) (bool, error) {
	body, err := c.send(ctx, k)
	if err != nil || len(body) == 0 {
		return false, err
	}
	if out == nil {
		out = new(json.RawMessage) // an HTML page must not pass for success
	}
	if err := json.Unmarshal(body, out); err != nil {
		return false, fmt.Errorf("%s: the answer is not JSON of the control plane's API: %w", k.route.ID, err)
	}
	return true, nil
}

// send sends the request, with retries, and returns the whole body of the answer: nil
// if the answer is 204.
func (c *Client) send(ctx context.Context, k call) ([]byte, error) {
	res, body, err := c.whole(ctx, k)
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode >= 300:
		return nil, problem(k.route.ID, res, body)
	case res.StatusCode == http.StatusNoContent:
		return nil, nil
	}
	return body, nil
}

// exchange sends the request, with retries, and returns the answer and its body. The body of the
// *http.Response is closed.
func (c *Client) exchange(ctx context.Context, k call) (*http.Response, []byte, error) {
	if k.once {
		ctx = context.WithValue(ctx, once{}, true)
	}
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", k.route.ID, err)
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
	req.SetResponseHandler(read) // an answer that breaks off counts as a failure and is retried
	res, err := c.http.Do(req)
	if err == nil && body == nil {
		err = read(res) // all retries are used up, and the last answer was not passed to the response handler
	}
	if err != nil {
		if res != nil {
			res.Body.Close()
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return nil, nil, &UnreachableError{URL: c.base.String(), Err: err}
	}
	if tooLarge || int64(len(body)) > limit(k.route) {
		return nil, nil, fmt.Errorf("%s: the answer is larger than %d bytes", k.route.ID, limit(k.route))
	}
	return res, body, nil
}

func (c *Client) request(ctx context.Context, k call) (*retryablehttp.Request, error) {
	path := k.route.Path
	for name, value := range k.path {
		if value == "" || value == "." || value == ".." {
			return nil, fmt.Errorf("%q is not a valid name or ID of: %s", value, name) // such a value would change the route
		}
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(value), 1)
	}
	u := c.base.String() + path
	if len(k.query) > 0 {
		u += "?" + k.query.Encode()
	}
	payload := k.raw
	var rd any
	if payload != nil {
		rd = bytes.NewReader(payload)
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, k.route.Method, u, rd)
	if err != nil {
		return nil, err
	}
	if payload != nil {
		req.Header.Set("Content-Type", cmp.Or(k.kind, "application/octet-stream"))
	}
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set(wire.HeaderProtocol, wire.Protocol)
	if takesParts(k.route) {
		req.Header.Set(wire.HeaderAcceptParts, "1")
	}
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

// problem returns the error for an answer with an error status. Its status is that of
// the status line, not the status in the body.
func problem(operation string, res *http.Response, body []byte) *Error {
	e := &Error{Operation: operation, RetryAfter: retryAfter(res)}
	mt, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if mt != "application/problem+json" || json.Unmarshal(body, &e.Problem) != nil {
		e.Problem = wire.Problem{Title: http.StatusText(res.StatusCode),
			Detail: fmt.Sprintf("the server answered %s without a reason; is this the URL of a control plane?", res.Status)}
	}
	e.Status = res.StatusCode
	if e.RequestID == "" {
		e.RequestID = res.Header.Get(wire.HeaderRequestID)
	}
	return e
}

// NewIdempotencyKey returns a key for one request that creates something. The retries
// of the request have the same key.
func NewIdempotencyKey() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}

// get sends the call and decodes the answer. An empty answer is an error.
func get[T any](ctx context.Context, c *Client, k call) (T, error) {
	var out T
	err := c.get(ctx, k, &out)
	return out, err
}

func (c *Client) get(ctx context.Context, k call, out any) error {
	ok, err := c.do(ctx, k, out)
	if err == nil && !ok {
		err = fmt.Errorf("%s: the control plane's answer is empty", k.route.ID)
	}
	return err
}
