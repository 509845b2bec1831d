package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Access says how a registry is reached. The zero value is anonymous, over TLS
// or to this machine.
type Access struct {
	// Token is a bearer token. It takes precedence over Username and Password,
	// is sent to the registry's own host only, and only if that answers 401
	// with any challenge, "Basic" included.
	Token              string
	Username, Password string
	// PlainHTTP allows a registry on another machine without TLS. Without it,
	// only a registry on a loopback address is spoken to without.
	PlainHTTP bool
	// Transport is used instead of the library's, which takes proxies from the
	// environment and has time-outs for connecting.
	Transport http.RoundTripper
}

// Push stores the artifact in the repository, "host[:port]/path", and returns
// its digest. What the registry has already is not sent again: pushing
// unchanged source sends nothing. Safe for concurrent use.
//
// Errors are of KindUnauthenticated, KindForbidden or KindNotFound by the
// registry's answer, of KindUnavailable otherwise; requests are retried before.
func Push(ctx context.Context, repository string, access Access, a *Artifact) (string, error) {
	repo, err := name.NewRepository(repository, access.nameOptions()...)
	if err != nil || strings.Contains(repository, "//") {
		return "", invalid("invalid-repository", "Write host[:port]/path.", "%q is not a repository", repository)
	}
	ref := repo.Digest(a.digest)
	options := access.options(ctx)
	_, err = remote.Head(ref, options...)
	if err == nil {
		return a.digest, nil
	}
	if status(err) != http.StatusNotFound {
		return "", remoteError("push", ref.String(), err)
	}
	img, err := a.image()
	if err != nil {
		return "", fmt.Errorf("push artifact %s: %w", ref, err)
	}
	if err := remote.Write(ref, img, options...); err != nil {
		return "", remoteError("push", ref.String(), err)
	}
	return a.digest, nil
}

// Pull fetches the artifact, "host[:port]/path@sha256:…", and unpacks it into
// dst, as Unpack does. Manifest and content are verified against the digest
// before the first file is written; meanwhile they are in memory, within the
// limits. Safe for concurrent use.
func Pull(ctx context.Context, ref string, access Access, dst *os.Root, limits Limits) error {
	digest, err := name.NewDigest(ref, access.nameOptions()...)
	if err != nil || strings.Contains(ref, "//") { // a URL: its scheme would be taken for a host
		return invalid("invalid-reference", "Write host[:port]/path@sha256:….", "%q is not an artifact's reference", ref)
	}
	options := access.options(ctx)
	desc, err := remote.Get(digest, options...)
	if err != nil {
		return remoteError("pull", ref, err)
	}
	layer, err := parseManifest(desc.Manifest)
	if err != nil {
		return err
	}
	if most := limits.withDefaults().tarBytes(); layer.Size > most {
		return invalid("artifact-too-large", "", "the artifact %s has %d bytes, the limit is %d", ref, layer.Size, most)
	}
	content, err := remote.Layer(digest.Context().Digest(layer.Digest.String()), options...)
	if err != nil {
		return remoteError("pull", ref, err)
	}
	rc, err := content.Compressed()
	if err != nil {
		return remoteError("pull", ref, err)
	}
	defer rc.Close()
	var archive bytes.Buffer
	if _, err := io.Copy(&archive, io.LimitReader(rc, layer.Size+1)); err != nil {
		return remoteError("pull", ref, err)
	}
	if int64(archive.Len()) != layer.Size || digestOf(archive.Bytes()) != layer.Digest {
		return damaged("", "has other content than its digest says", nil)
	}
	return Unpack(&archive, dst, limits)
}

func (a Access) nameOptions() []name.Option {
	options := []name.Option{name.StrictValidation}
	if a.PlainHTTP {
		options = append(options, name.Insecure)
	}
	return options
}

func (a Access) options(ctx context.Context) []remote.Option {
	var auth authn.Authenticator = authn.Anonymous
	switch {
	case a.Token != "":
		auth = &authn.Bearer{Token: a.Token}
	case a.Username != "":
		auth = &authn.Basic{Username: a.Username, Password: a.Password}
	}
	inner := a.Transport
	if inner == nil {
		inner = remote.DefaultTransport
	}
	return []remote.Option{
		remote.WithContext(ctx),
		remote.WithAuth(auth),
		remote.WithTransport(plainGuard{inner: inner, allowed: a.PlainHTTP}),
		// 0.3 + 0.9 + 2.7 seconds of waiting: long enough for a restart of the
		// control plane, short enough for a person to wait.
		remote.WithRetryBackoff(remote.Backoff{Duration: 300 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 4}),
	}
}

// plainGuard refuses to speak without TLS to another machine. The library would
// do so for private addresses and for names that end in ".local", where a token
// is as easily read as elsewhere.
type plainGuard struct {
	inner   http.RoundTripper
	allowed bool
}

func (g plainGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" && !g.allowed && !isLoopback(req.URL.Hostname()) {
		return nil, &fairlead.Error{
			Kind: fairlead.KindForbidden, Code: "registry-without-tls",
			Message: fmt.Sprintf("the registry %s answers without TLS", req.URL.Host),
			Hint:    "Serve it over https; without TLS only a registry on the same machine is used.",
		}
	}
	return g.inner.RoundTrip(req)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// status returns the registry's answer, or 0 if there was none.
func status(err error) int {
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return e.StatusCode
	}
	return 0
}

// reason says in the registry's own words, if it had any, what it lacks.
func reason(err error) string {
	e, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return "the registry gave no usable answer"
	}
	if len(e.Errors) == 0 {
		return fmt.Sprintf("the registry answered with status %d", e.StatusCode)
	}
	return fmt.Sprintf("the registry answered with status %d, %q", e.StatusCode, abbreviate(e.Errors[0].Message))
}

func remoteError(operation, ref string, err error) error {
	if _, ok := errors.AsType[*fairlead.Error](err); ok || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s artifact %s: %w", operation, ref, err)
	}
	e := &fairlead.Error{Err: err}
	switch status(err) {
	case http.StatusUnauthorized:
		e.Kind, e.Code = fairlead.KindUnauthenticated, "registry-unauthenticated"
		e.Message, e.Hint = "the registry does not know who is calling", "Log in again."
	case http.StatusForbidden:
		e.Kind, e.Code = fairlead.KindForbidden, "registry-forbidden"
		e.Message = "the registry does not allow it"
	case http.StatusNotFound:
		e.Kind, e.Code = fairlead.KindNotFound, "artifact-not-found"
		e.Message, e.Hint = "the registry does not have it", "Apply the app again: that pushes its artifacts."
	case http.StatusRequestEntityTooLarge:
		e.Kind, e.Code = fairlead.KindTooLarge, "registry-too-large"
		e.Message = "the registry refuses its size"
	default:
		e.Kind, e.Code = fairlead.KindUnavailable, "registry-unavailable"
		e.Message, e.Hint = reason(err), "Try again later; the log of the registry says more."
	}
	e.Message = fmt.Sprintf("cannot %s the artifact %s: %s", operation, ref, e.Message)
	return e
}
