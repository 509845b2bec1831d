package artifact

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	registry "github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/fairlead/fairlead/pkg/artifact/fetch"
	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/transport"
)

// Access has the settings to connect to a registry. The zero value is anonymous, and uses
// TLS except on loopback addresses.
type Access struct {
	// Token is a bearer token. It takes precedence over Username and Password. It is sent
	// only to the registry's own host. Push sends it only after the registry's host has
	// answered 401. The challenge of the 401 may be any challenge, also "Basic".
	Token              string
	Username, Password string
	// PlainHTTP permits a registry on another machine without TLS. If it is false, only a
	// registry on a loopback address may be without TLS.
	PlainHTTP bool
	// Transport replaces the library's transport, which reads proxies from the environment
	// and has timeouts for connecting.
	Transport http.RoundTripper
}

// Push stores the artifact in the repository, "host[:port]/path", and returns its digest.
// It does not send content that the registry already has, so a push of unchanged source
// sends no content. Safe for concurrent use.
//
// The registry's response determines the kind of an error: KindUnauthenticated,
// KindForbidden, KindNotFound or KindTooLarge, and otherwise KindUnavailable. Push retries
// requests before it returns an error.
func Push(ctx context.Context, repository string, access Access, a *Artifact) (string, error) {
	repo, err := name.NewRepository(repository, access.nameOptions(repository)...)
	if err != nil || strings.Contains(repository, "//") {
		return "", tree.Invalid(fairlead.CodeInvalidRepository, "Write host[:port]/path.", "%q is not a repository", repository)
	}
	ref := repo.Digest(a.digest)
	options := access.options(ctx)
	_, err = remote.Head(ref, options...)
	if err == nil {
		return a.digest, nil
	}
	if e, ok := errors.AsType[*registry.Error](err); !ok || e.StatusCode != http.StatusNotFound {
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

// Tag gives a tag to the artifact with the digest in the repository, "host[:port]/path". An artifact that had the tag loses it.
// Errors are as of Push. Safe for concurrent use.
func Tag(ctx context.Context, repository string, access Access, digest, tag string) error {
	repo, err := name.NewRepository(repository, access.nameOptions(repository)...)
	if err != nil {
		return tree.Invalid(fairlead.CodeInvalidRepository, "Write host[:port]/path.", "%q is not a repository", repository)
	}
	ref, options := repo.Digest(digest), access.options(ctx)
	found, err := remote.Get(ref, options...)
	if err == nil {
		err = remote.Tag(repo.Tag(tag), found, options...)
	}
	if err != nil {
		return remoteError("tag", ref.String(), err)
	}
	return nil
}

// Pull fetches the artifact, "host[:port]/path@sha256:…", and unpacks it into dst, like
// Unpack. It verifies the manifest and the content against the digest before it writes the
// first file. Before it writes files, the manifest and the content are in memory, within the
// limits. Unlike Push, Pull sends the login of access with every request to the registry's
// own host. Safe for concurrent use.
func Pull(ctx context.Context, ref string, access Access, dst *os.Root, limits Limits) error {
	login := func(context.Context) (fetch.Login, error) {
		return fetch.Login{Token: access.Token, Username: access.Username, Password: access.Password}, nil
	}
	_, err := fetch.Puller{Login: login, PlainHTTP: access.PlainHTTP, Transport: access.Transport}.Pull(ctx, ref, dst, limits)
	return err
}

// nameOptions returns the options for the name of the repository. The library tries TLS first. It goes on without TLS if
// Insecure is among the options, or if the host is 127.0.0.1, but not by itself for other loopback addresses.
func (a Access) nameOptions(repository string) []name.Option {
	options := []name.Option{name.StrictValidation}
	address, _, _ := strings.Cut(repository, "/")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address // it has no port
	}
	if a.PlainHTTP || transport.IsLoopback(host) {
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
		remote.WithTransport(transport.PlainGuard{Inner: inner, Allowed: a.PlainHTTP, Refuse: tree.WithoutTLS}),
		// The waits are 0.3, 0.9 and 2.7 seconds. Together they are longer than a restart of
		// the control plane, and short enough for a person to wait.
		remote.WithRetryBackoff(remote.Backoff{Duration: 300 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 4}),
	}
}

// remoteError returns the error for the registry's response to an operation on ref.
func remoteError(operation, ref string, err error) error {
	status, message := 0, ""
	if e, ok := errors.AsType[*registry.Error](err); ok {
		status = e.StatusCode
		if len(e.Errors) > 0 {
			message = e.Errors[0].Message
		}
	}
	return tree.Refused(operation, ref, status, message, err)
}
