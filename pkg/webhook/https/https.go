// Package https sends webhooks. The creator of a webhook chooses the destination of requests, and the sender runs in
// a network with services that the creator must not reach. Therefore the sender connects only to public addresses and
// only by https, follows no redirect, uses no proxy, and reads only a limited part of the response.
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

// maxAnswer is the largest part of a response body that is read, in bytes. The sender uses only the status. It reads the
// body only so that the connection can be used again.
const maxAnswer = 64 << 10

// Sender is a webhook.Sender. Safe for concurrent use.
type Sender struct {
	client *http.Client
	now    func() time.Time
	agent  string
}

var _ webhook.Sender = (*Sender)(nil)

// New returns a sender with the transport: the result of Transport, or a test's. timeout limits a request, including
// its whole response.
func New(transport http.RoundTripper, timeout time.Duration, version string, now func() time.Time) *Sender {
	return &Sender{now: now, agent: "fairlead/" + version, client: &http.Client{
		Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Transport returns a transport that connects to public addresses only. It checks the address when it connects, after
// the name was resolved. So a name that resolves to another address at a second lookup does not bypass the check.
func Transport() *http.Transport {
	guard := ssrf.New(ssrf.WithAnyPort())
	return &http.Transport{
		Proxy: nil, // a proxy would connect to addresses that this transport refuses
		DialContext: (&net.Dialer{Timeout: 5 * time.Second, Control: func(network, address string, conn syscall.RawConn) error {
			return guard.Safe(network, address, conn)
		}}).DialContext,
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: 2, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 32 << 10,
	}
}

// Send implements webhook.Sender.
func (s *Sender) Send(ctx context.Context, endpoint string, keys []webhook.Keys, m webhook.Message) (int, error) {
	if err := webhook.CheckURL(endpoint); err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(m.Body))
	if err != nil {
		return 0, fairlead.Invalid(fairlead.CodeInvalidWebhookURL, "%.200q is not a URL to which events can be sent", endpoint)
	}
	at := s.now()
	req.Header.Set("Content-Type", webhook.ContentType)
	req.Header.Set("User-Agent", s.agent)
	req.Header.Set(webhook.HeaderID, m.ID)
	req.Header.Set(webhook.HeaderTimestamp, webhook.Timestamp(at))
	req.Header.Set(webhook.HeaderSignature, webhook.Sign(keys, m, at))
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, refused(err, req.URL.Hostname())
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // the status is known already
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// refused converts err to an error that the webhook's owner may read. The result contains no address of the
// operator's network, and does not reveal whether the operator's resolver knows a name of that network. An unknown
// name, a failing resolver and a name with a private address give the same error, so its kind is KindUnavailable and
// the delivery is repeated. If the URL itself contains the address, the kind is KindInvalid, because repeating is
// useless.
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
		return errors.New("it did not respond in time")
	}
	return err
}
