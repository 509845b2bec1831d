// Package awsiam proves which AWS role a runner has. The runner signs a GetCallerIdentity request with its role's
// credentials and sends the signature, not the request. The control plane builds the request itself and sends it to
// STS. So the caller cannot choose the method, path, query, body, headers or action, and can choose the host only from a
// closed list. Attackers exploited these parts of the request in schemes that accept the caller's request.
//
// The signature covers a nonce of the control plane, the host that the runner intends to call, and a digest of the
// runner's request for a session.
//
// This package does no cryptography and does not import an SDK. The runner's half, which signs, is in package sign.
package awsiam

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The parts that every proof's request shares. A change here changes the protocol: deployed agents sign these parts.
const (
	// Service is the service of the signature's credential scope.
	Service = "sts"
	// Body is the body of the request: one action, one version.
	Body = "Action=GetCallerIdentity&Version=2011-06-15"
	// SignedHeaders are the headers that the signature covers: these, in this
	// order, and no others.
	SignedHeaders = "content-length;content-type;host;x-amz-date;x-amz-security-token;" +
		"x-fairlead-audience;x-fairlead-nonce;x-fairlead-statement"
	// DateFormat is the format of Proof.Date, always UTC.
	DateFormat = "20060102T150405Z"

	contentType = "application/x-www-form-urlencoded; charset=utf-8"
	algorithm   = "AWS4-HMAC-SHA256"
)

// The headers that bind a signature to its purpose.
const (
	headerAudience  = "X-Fairlead-Audience"
	headerNonce     = "X-Fairlead-Nonce"
	headerStatement = "X-Fairlead-Statement"
)

// Challenge holds the facts that a proof is bound to. The runner and the control plane know the challenge, so it is not
// part of the proof.
type Challenge struct {
	Nonce     string // from the control plane, valid for one session
	Audience  string // the control plane's host, as Audience gives it
	Statement []byte // the runner's request for a session; its digest is signed
}

// Proof is the runner's part of the signed request; the control plane knows the rest. The token and the signature are
// valid for this one request only. They are still kept out of logs.
type Proof struct {
	Host         string `json:"host"`          // of Endpoints, exactly
	AccessKeyID  string `json:"access_key_id"` // of temporary credentials
	SessionToken string `json:"session_token"`
	Date         string `json:"date"`      // in DateFormat
	Signature    string `json:"signature"` // Signature Version 4, lower-case hexadecimal
}

// String leaves out the token and the signature.
func (p Proof) String() string { return "proof of " + p.AccessKeyID + " at " + p.Host }

// GoString is String, so that %#v does not show more.
func (p Proof) GoString() string { return p.String() }

// maxToken is the maximum size of a session token, in bytes. STS documents no maximum, only that most tokens are below
// 4,096.
const maxToken = 8192

// Audience returns the audience of the control plane at a URL: its host in lower case, with the port unless it is the
// scheme's default.
func Audience(controlPlane string) (string, error) {
	u, err := url.Parse(controlPlane)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil || u.Opaque != "" {
		return "", fairlead.Invalid(fairlead.CodeInvalidURL, "%q is not a URL of a control plane", controlPlane)
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if (u.Scheme == "https" && port == "443") || (u.Scheme == "http" && port == "80") {
		port = ""
	}
	switch {
	case port != "":
		host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	if !audience().match(host) || strings.HasSuffix(u.Hostname(), ".") {
		return "", fairlead.Invalid(fairlead.CodeInvalidURL, "the host of %q cannot be an audience", controlPlane)
	}
	return host, nil
}

func (c Challenge) check() error {
	if !nonce().match(c.Nonce) {
		return fmt.Errorf("the nonce is not valid: want 16 to 256 characters of A-Z, a-z, 0-9, _, . and -")
	}
	if !audience().match(c.Audience) {
		return fmt.Errorf("the audience %q is not valid: want a host, optionally with a port", c.Audience)
	}
	return nil
}

// NewRequest returns the request of a proof at e without its Authorization header. The runner signs it, and the control
// plane sends it.
func NewRequest(ctx context.Context, e Endpoint, c Challenge, at time.Time, token string) (*http.Request, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+e.Host+"/", strings.NewReader(Body))
	if err != nil {
		return nil, fmt.Errorf("create the request of a proof at %s: %w", e.Host, err)
	}
	digest := sha256.Sum256(c.Statement)
	r.Header = http.Header{
		"Content-Type":         {contentType},
		"X-Amz-Date":           {at.UTC().Format(DateFormat)},
		"X-Amz-Security-Token": {token},
		headerAudience:         {c.Audience},
		headerNonce:            {c.Nonce},
		headerStatement:        {hex.EncodeToString(digest[:])},
	}
	return r, nil
}

// check returns the endpoint and the time of the proof, or an error if the proof is invalid. It sends no request to STS.
func (p Proof) check(now time.Time) (Endpoint, time.Time, error) {
	e, ok := endpointAt(p.Host)
	if !ok {
		return e, time.Time{}, refused("host", "%s is not one of the regional hosts of STS", quote(p.Host))
	}
	if strings.HasPrefix(p.AccessKeyID, "AKIA") {
		return e, time.Time{}, refused("static-key", "the credentials are the static key of a user; a runner must use a role")
	}
	for _, f := range []struct {
		name, value string
		shape       shape
	}{
		{"access key", p.AccessKeyID, accessKeyID()},
		{"session token", p.SessionToken, sessionToken()},
		{"signature", p.Signature, signature()},
	} {
		if !f.shape.match(f.value) {
			return e, time.Time{}, refused("malformed", "the %s is malformed", f.name)
		}
	}
	at, err := time.Parse(DateFormat, p.Date)
	if err != nil || at.Format(DateFormat) != p.Date {
		return e, at, refused("malformed", "the date is malformed")
	}
	if d := now.Sub(at); d > MaxSkew || d < -MaxSkew {
		return e, at, refused("clock", "the date of the proof is %s, which differs from the control plane's clock by %s; at most %s is allowed: check the runner's clock",
			p.Date, d.Round(time.Second).Abs(), MaxSkew)
	}
	return e, at, nil
}

// request returns the request that p signs. STS checks the signature.
func (p Proof) request(ctx context.Context, e Endpoint, at time.Time, c Challenge) (*http.Request, error) {
	r, err := NewRequest(ctx, e, c, at, p.SessionToken)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", algorithm+" Credential="+p.AccessKeyID+"/"+p.Date[:8]+"/"+e.Region+"/"+Service+"/aws4_request, "+
		"SignedHeaders="+SignedHeaders+", Signature="+p.Signature)
	// Accept-Encoding is not signed. Without "identity", the transport would ask for gzip and inflate any answer, and
	// the limit on bytes read would not limit the bytes received.
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "fairlead")
	return r, nil
}

// quote shortens and quotes text from a caller.
func quote(s string) string { return strconv.QuoteToASCII(s[:min(len(s), 80)]) }
