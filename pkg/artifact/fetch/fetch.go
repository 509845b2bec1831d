// Package fetch fetches a component's artifact by digest, for the process that runs a job.
// It needs two requests, or none if the artifact is in the cache.
//
// It does not use the registry library that package artifact uses to push. The library's
// handshake would cost each job two more requests and a connection, and reading a manifest
// and a blob by digest needs no handshake.
// docs/contributing/decisions/two-pullers-of-artifacts.md has the numbers.
package fetch

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/transport"
)

// Limits are the limits of unpacking. A zero field means the default.
type Limits = tree.Limits

// Login has the caller's credentials: a bearer token, or a user name and a password. Token
// takes precedence. The zero value is anonymous.
type Login struct{ Token, Username, Password string }

func (l Login) authorization() string {
	switch {
	case l.Token != "":
		return "Bearer " + l.Token
	case l.Username != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(l.Username+":"+l.Password))
	}
	return ""
}

// Puller fetches artifacts. The zero value is anonymous, uses TLS except on loopback addresses, and has no cache. Safe
// for concurrent use.
type Puller struct {
	// Login is called once for each download, before its first request; nil: anonymous. The
	// login is sent only to the registry's own host. If the registry redirects to another
	// host, the login is not sent to the other host.
	Login func(context.Context) (Login, error)
	// PlainHTTP permits a registry on another machine without TLS. If it is false, only a
	// registry on a loopback address may be without TLS.
	PlainHTTP bool
	// TLS, if true, requires TLS also for a registry on a loopback address.
	TLS bool
	// Transport replaces http.DefaultTransport.
	Transport http.RoundTripper
	// Cache stores fetched artifacts; nil: no cache. Reading from the cache needs no
	// permission: a caller that knows an artifact's digest gets the artifact.
	Cache *Cache
}

// The waits between attempts are 0.3, 0.9 and 2.7 seconds, and then 5 seconds each. A request is
// repeated for longer than a restart of the control plane on a busy machine, and not for longer
// than a person waits.
const (
	patience   = 20 * time.Second
	firstPause = 300 * time.Millisecond
	maxPause   = 5 * time.Second
	pauseGrows = 3
	pauseVary  = 0.1
)

// Pull fetches the artifact, "host[:port]/path@sha256:…", and unpacks it into dst. dst
// should be empty: Pull replaces no file and writes nothing outside dst. It verifies the
// manifest and the content against the digest before it writes the first file, also if they
// come from the cache. Before it writes files, the manifest and the content are in memory,
// within the limits.
//
// It returns the path of the component's folder in dst. The path is valid (fs.ValidPath),
// and is "." unless the artifact also contains shared folders.
//
// The registry's response determines the kind of an error: KindUnauthenticated,
// KindForbidden, KindNotFound or KindTooLarge, and otherwise KindUnavailable. If the artifact
// is not valid, the error is of KindInvalid. Pull retries requests before it returns an error.
func (p Puller) Pull(ctx context.Context, ref string, dst *os.Root, limits Limits) (folder string, err error) {
	r, ok := parseReference(ref)
	if !ok {
		return "", tree.Invalid(fairlead.CodeInvalidReference, "Write host[:port]/path@sha256:….", "%q is not a reference of an artifact", ref)
	}
	most := limits.WithDefaults().TarBytes()
	if archive, folder, ok := p.Cache.get(r.digest, most); ok {
		return folder, tree.Unpack(bytes.NewReader(archive), dst, limits)
	}
	d, err := p.download(ctx, r)
	if err != nil {
		return "", err
	}
	manifest, archive, folder, err := d.artifact(ctx, ref, most)
	if err != nil {
		return "", err
	}
	if err := tree.Unpack(bytes.NewReader(archive), dst, limits); err != nil {
		return "", err
	}
	p.Cache.put(r.digest, manifest, archive)
	return folder, nil
}

// download is the state of one download. Not safe for concurrent use.
type download struct {
	ref     reference
	client  *http.Client
	schemes []string // schemes to try; only one is left after the first response
}

func (p Puller) download(ctx context.Context, r reference) (*download, error) {
	var login Login
	if p.Login != nil {
		var err error
		if login, err = p.Login(ctx); err != nil {
			return nil, fmt.Errorf("log in to %s: %w", r.host, err)
		}
	}
	inner := p.Transport
	if inner == nil {
		inner = http.DefaultTransport
	}
	schemes := []string{"https"}
	switch {
	case p.TLS:
	case transport.IsLoopback(r.hostname):
		schemes = []string{"http", "https"}
	case p.PlainHTTP:
		schemes = []string{"https", "http"}
	}
	return &download{ref: r, schemes: schemes, client: &http.Client{Transport: credentials{
		inner: transport.PlainGuard{Inner: inner, Allowed: p.PlainHTTP, Refuse: tree.WithoutTLS}, host: r.host, authorization: login.authorization(),
	}}}, nil
}

// credentials adds the login to requests for one host and no other host. The standard
// library's client would send the login to more hosts: after a redirect, it treats another
// port of the same machine, and subdomains, as the same host.
type credentials struct {
	inner         http.RoundTripper
	host          string
	authorization string
}

func (c credentials) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.authorization != "" && req.URL.Host == c.host {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", c.authorization)
	}
	return c.inner.RoundTrip(req)
}

// artifact returns the verified manifest, the verified archive, and the path of the component's folder in the archive.
func (d *download) artifact(ctx context.Context, ref string, most int64) (manifest, archive []byte, folder string, err error) {
	manifest, err = d.get(ctx, "manifests", d.ref.digest, tree.MaxManifest)
	if err == nil && tree.Digest(manifest) != d.ref.digest {
		err = errors.New("the manifest does not match its digest")
	}
	if err != nil {
		return nil, nil, "", refused(ref, err)
	}
	layer, err := tree.ParseManifest(manifest)
	if err != nil {
		return nil, nil, "", err
	}
	if layer.Size > most {
		return nil, nil, "", tree.Invalid(fairlead.CodeArtifactTooLarge, "", "the artifact %s has %d bytes, the limit is %d", ref, layer.Size, most)
	}
	archive, err = d.get(ctx, "blobs", layer.Digest, layer.Size)
	switch {
	case errors.Is(err, errTooLong):
		return nil, nil, "", tree.Damaged("", "does not match its digest", err)
	case err != nil:
		return nil, nil, "", refused(ref, err)
	case int64(len(archive)) != layer.Size || tree.Digest(archive) != layer.Digest:
		return nil, nil, "", refused(ref, errors.New("the layer does not match its digest"))
	}
	return manifest, archive, layer.Folder, nil
}

// answer is a response of the registry with a status other than 200.
type answer struct {
	status  int
	message string
}

func (a *answer) Error() string { return fmt.Sprintf("status %d: %s", a.status, a.message) }

func refused(ref string, err error) error {
	if a, ok := errors.AsType[*answer](err); ok {
		return tree.Refused("pull", ref, a.status, a.message, err)
	}
	return tree.Refused("pull", ref, 0, "", err)
}

// errTooLong reports a response with more bytes than allowed.
var errTooLong = errors.New("the registry's response is larger than allowed")

// get returns the unverified manifest or blob with the digest. It returns errTooLong if the
// response has more than limit bytes.
func (d *download) get(ctx context.Context, noun, digest string, limit int64) ([]byte, error) {
	pause := &backoff.ExponentialBackOff{InitialInterval: firstPause, Multiplier: pauseGrows, RandomizationFactor: pauseVary, MaxInterval: maxPause}
	return backoff.Retry(ctx, func() ([]byte, error) {
		var body []byte
		var err error
		for i, scheme := range d.schemes {
			body, err = d.once(ctx, scheme+"://"+d.ref.host+"/v2/"+d.ref.repository+"/"+noun+"/"+digest, limit)
			a, answered := errors.AsType[*answer](err)
			// Stop at the first scheme that works. A server with TLS answers a request without
			// TLS with 400, so after 400 the next scheme is tried.
			if i == len(d.schemes)-1 || err == nil || answered && a.status != http.StatusBadRequest || ctx.Err() != nil {
				if err == nil || answered {
					d.schemes = []string{scheme}
				}
				break
			}
		}
		if err != nil && !passing(err) {
			err = backoff.Permanent(err)
		}
		return body, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(patience))
}

// passing reports whether the error is temporary, so that a retry may succeed.
func passing(err error) bool {
	if a, ok := errors.AsType[*answer](err); ok {
		switch a.status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	_, ours := errors.AsType[*fairlead.Error](err)
	return !ours && !errors.Is(err, errTooLong)
}

func (d *download) once(ctx context.Context, url string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", tree.ManifestType+", application/octet-stream;q=0.5")
	res, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 8<<10)) // the message is only shown; the status determines the error
		return nil, &answer{status: res.StatusCode, message: saying(b)}
	}
	if res.ContentLength > limit {
		return nil, errTooLong
	}
	// Allocate once if the registry states the size.
	buf := bytes.NewBuffer(make([]byte, 0, min(limit, max(res.ContentLength, 0))+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(res.Body, limit+1)); err != nil {
		return nil, err
	}
	if int64(buf.Len()) > limit {
		return nil, errTooLong
	}
	return buf.Bytes(), nil
}

// saying returns the message of an error response in the distribution specification's
// format, or "" if the body has no message.
func saying(body []byte) string {
	var e struct {
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &e) != nil || len(e.Errors) == 0 {
		return ""
	}
	return e.Errors[0].Message
}
