package awsiam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

const (
	// MaxSkew is the largest accepted difference between a proof's date and this process's clock. STS allows 15
	// minutes. A nonce is valid for one minute, so MaxSkew is only for wrong clocks.
	MaxSkew = 5 * time.Minute
	// maxAnswer is the maximum size of an answer of STS, in bytes. A real answer has about 500 bytes.
	maxAnswer = 16 << 10
)

// Options vary a Verifier. The zero value is useful.
type Options struct {
	// Timeout limits the verification of one proof, including the wait for its turn; 0: 5 s.
	Timeout time.Duration
	// Concurrent limits the requests to STS at the same time, because any caller with a nonce can cause a request; 0:
	// 32. AWS publishes no quota of GetCallerIdentity. Users report a quota of 600 requests a second for an account.
	Concurrent int
}

// Verifier verifies proofs with the help of STS. Safe for concurrent use.
type Verifier struct {
	transport http.RoundTripper
	now       func() time.Time
	timeout   time.Duration
	turns     chan struct{}
}

// NewVerifier returns a Verifier that reaches STS by transport, which must verify the names of servers. It takes a
// transport, not a client, because a transport follows no redirects and keeps no cookies.
func NewVerifier(transport http.RoundTripper, now func() time.Time, o Options) *Verifier {
	if transport == nil || now == nil {
		panic("awsiam: a verifier needs a transport and a clock")
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Concurrent == 0 {
		o.Concurrent = 32
	}
	return &Verifier{transport: transport, now: now, timeout: o.Timeout, turns: make(chan struct{}, o.Concurrent)}
}

// Verify returns the role that made the proof for exactly this challenge. The caller must check that it issued the
// challenge and that the challenge is unused.
//
// The error is of KindUnauthenticated if the proof is invalid, with the reason in its details. It is of KindUnavailable
// if STS could not be reached or the answer is not certainly from STS.
func (v *Verifier) Verify(ctx context.Context, p Proof, c Challenge) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	e, at, err := p.check(v.now())
	if err != nil {
		return Identity{}, err
	}
	r, err := p.request(ctx, e, at, c)
	if err != nil {
		return Identity{}, fmt.Errorf("verify an AWS identity: %w", err)
	}
	select {
	case v.turns <- struct{}{}:
		defer func() { <-v.turns }()
	case <-ctx.Done():
		return Identity{}, unavailable("too many AWS identities are being verified at the same time", ctx.Err())
	}
	answer, err := v.transport.RoundTrip(r)
	if err != nil {
		return Identity{}, unavailable("the request to STS failed", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return Identity{}, unavailable("the connection to STS ended in the answer", err)
	case len(body) > maxAnswer:
		return Identity{}, unavailable("the answer is not from STS", fmt.Errorf("it has more than %d bytes", maxAnswer))
	case len(answer.Header.Values("Content-Encoding")) > 0:
		return Identity{}, unavailable("the answer is not from STS", errors.New("it has a Content-Encoding"))
	}
	switch s := answer.StatusCode; {
	case s == http.StatusOK:
		id, err := parseAnswer(answer.Header, body, e)
		if err != nil && fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			return Identity{}, unavailable("the answer is not from STS", err)
		}
		return id, err
	case s == http.StatusBadRequest || s == http.StatusUnauthorized || s == http.StatusForbidden:
		code := errorCode(body)
		if strings.HasPrefix(code, "Throttl") || code == "RequestLimitExceeded" {
			return Identity{}, unavailable("STS limits the rate of requests", fmt.Errorf("%d %s", s, code))
		}
		if code == "" { // the answer is not from STS but from a server in front of it
			return Identity{}, unavailable("the answer is not from STS", fmt.Errorf("status %d", s))
		}
		return Identity{}, refused("signature", "STS refused the signature: %s", code)
	default: // 1xx and other 2xx, redirects, answers of a proxy, failures of STS
		return Identity{}, unavailable("STS did not verify the identity", fmt.Errorf("status %d", s))
	}
}

// refused returns the error for an invalid proof.
func refused(reason, format string, args ...any) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeAWSIdentityRefused,
		Message: "the AWS identity is not proven: " + fmt.Sprintf(format, args...), Details: map[string]string{"reason": reason}}
}

// unavailable returns the error for a proof that could not be verified.
func unavailable(message string, err error) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeAWSIdentityUnavailable, Message: message, Err: err}
}
