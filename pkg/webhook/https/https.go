// Package https sends webhooks. Whoever makes a webhook chooses where requests
// go, and the sender sits beside what others must not reach: so it connects to
// public addresses only, by https only, follows no redirect, uses no proxy and
// reads little of the answer.
package https

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/webhook"
)

// maxAnswer is how much of an answer is read, in bytes, so that its connection
// can be used again. Nothing in it matters but the status.
const maxAnswer = 64 << 10

// Sender is a webhook.Sender. Safe for concurrent use.
type Sender struct {
	client *http.Client
	now    func() time.Time
	agent  string
}

var _ webhook.Sender = (*Sender)(nil)

// New returns a sender over the transport, which is one of Transport's or a
// test's. timeout bounds a request with all of its answer.
func New(transport http.RoundTripper, timeout time.Duration, version string, now func() time.Time) *Sender {
	return &Sender{now: now, agent: "fairlead/" + version, client: &http.Client{
		Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Transport connects to public addresses only. The address is judged when the
// connection is made, after the name was resolved: a name that resolves to
// another address the next time gains nothing.
func Transport() *http.Transport {
	guard := ssrf.New(ssrf.WithAnyPort())
	return &http.Transport{
		Proxy: nil, // a proxy would connect where we do not
		DialContext: (&net.Dialer{Timeout: 5 * time.Second, Control: func(network, address string, conn syscall.RawConn) error {
			return guard.Safe(network, address, conn)
		}}).DialContext,
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: 2, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 32 << 10,
	}
}

// Send implements webhook.Sender.
func (s *Sender) Send(ctx context.Context, endpoint string, secret []byte, m webhook.Message) (int, error) {
	if err := webhook.CheckURL(endpoint); err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(m.Body))
	if err != nil {
		return 0, fairlead.Invalid(fairlead.CodeInvalidWebhookURL, "%.200q is no URL that events can be sent to", endpoint)
	}
	at := s.now()
	req.Header.Set("Content-Type", webhook.ContentType)
	req.Header.Set("User-Agent", s.agent)
	req.Header.Set(webhook.HeaderID, m.ID)
	req.Header.Set(webhook.HeaderTimestamp, webhook.Timestamp(at))
	req.Header.Set(webhook.HeaderSignature, webhook.Sign(secret, m, at))
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, refused(err, req.URL.Hostname())
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // the status has come
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// refused makes the error one that the webhook's owner may read: it says what
// happened, no address of a network of ours, and not whether our resolver knows
// a name of that network. A resolver that fails is such an error, so it is none
// after which a delivery is given up; an address that stands in the URL is, as
// it stays what it is.
func refused(err error, host string) error {
	e, ok := errors.AsType[*url.Error](err)
	if ok {
		err = e.Err // without method and URL
	}
	_, unresolved := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case unresolved, errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		kind := fairlead.KindUnavailable
		if _, err := netip.ParseAddr(host); err == nil {
			kind = fairlead.KindInvalid
		}
		return &fairlead.Error{Kind: kind, Code: fairlead.CodeWebhookAddress,
			Message: "its host has no public address", Hint: "Webhooks are sent to public addresses only."}
	case ok && e.Timeout():
		return errors.New("it did not answer in time")
	}
	return err
}
