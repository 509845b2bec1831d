// Package provider finds the archives of providers of OpenTofu and Terraform: in a folder that `tofu providers mirror` writes, or in the
// registry that the address of a provider names, by the protocol of provider registries. An archive is the locked one, or it is refused.
package provider

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/images/mirror"
)

// The limits of requests.
const (
	maxAnswer   = 1 << 20 // bytes of an answer in JSON
	maxArchive  = 1 << 30 // bytes
	archiveTime = 10 * time.Minute
	answerTime  = 30 * time.Second

	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
)

// Finder finds archives.
type Finder struct {
	Client    *http.Client
	Token     func(host string) string // for a registry; "": none
	Folder    string                   // in the packed layout of a filesystem mirror; "": only registries have archives
	Temporary string                   // folder for archives that are downloaded
	Platforms []string                 // such as linux/amd64
	Pause     time.Duration            // before a request is repeated for the first time; 0: firstPause
}

// statusError is an answer other than 200.
type statusError struct {
	host string
	code int
}

func (e statusError) Error() string {
	return fmt.Sprintf("%s answers %d %s", e.host, e.code, http.StatusText(e.code))
}

// errAbsent reports that there is no archive for a platform, or that the lock file does not have its hash.
var errAbsent = errors.New("there is no archive")

// Archives returns the archives of a provider for the platforms. absent has the reason for each platform without one. It is an error if
// there is none for any platform.
func (f *Finder) Archives(ctx context.Context, item bundle.Item) (found []mirror.Archive, absent []string, err error) {
	parts := strings.Split(item.Name, "/")
	if len(parts) != 3 || !fs.ValidPath(item.Name) || !fs.ValidPath(item.Version) || strings.Contains(item.Version, "/") {
		return nil, nil, fmt.Errorf("%.200q is not the address of a provider", item.Name+" "+item.Version)
	}
	for _, platform := range f.Platforms {
		a, err := f.archive(ctx, item, platform)
		switch {
		case errors.Is(err, errAbsent):
			absent = append(absent, fmt.Sprintf("provider %s %s for %s: %v", item.Name, item.Version, platform, err))
		case err != nil:
			return nil, nil, fmt.Errorf("provider %s %s for %s: %w", item.Name, item.Version, platform, err)
		default:
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return nil, nil, fmt.Errorf("no archive of a provider can be used: %s. `tofu providers lock -platform=linux_amd64` adds a platform to the lock file", strings.Join(absent, "; "))
	}
	return found, absent, nil
}

func (f *Finder) archive(ctx context.Context, item bundle.Item, platform string) (mirror.Archive, error) {
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return mirror.Archive{}, fmt.Errorf("%.100q is not a platform such as linux/amd64", platform)
	}
	name := fmt.Sprintf("terraform-provider-%s_%s_%s_%s.zip", path.Base(item.Name), item.Version, system, processor)
	if f.Folder != "" {
		a, err := check(filepath.Join(f.Folder, filepath.FromSlash(item.Name), name), platform, item.Hashes)
		if !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
	}
	file := filepath.Join(f.Temporary, name)
	if err := f.download(ctx, item, system, processor, file); err != nil {
		return mirror.Archive{}, err
	}
	return check(file, platform, item.Hashes)
}

// check returns the archive in a file, if the hashes of a lock file have it.
func check(file, platform string, hashes []string) (mirror.Archive, error) {
	r, err := os.Open(file)
	if err != nil {
		return mirror.Archive{}, err
	}
	defer r.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, r)
	if err != nil {
		return mirror.Archive{}, fmt.Errorf("read the archive: %w", err)
	}
	digits := hex.EncodeToString(sum.Sum(nil))
	if !slices.Contains(hashes, "zh:"+digits) {
		h1, err := dirhash.HashZip(file, dirhash.Hash1)
		if err != nil || !slices.Contains(hashes, h1) {
			return mirror.Archive{}, fmt.Errorf("%w with a hash in the lock file", errAbsent)
		}
	}
	return mirror.Archive{Platform: platform, File: file, Digest: "sha256:" + digits, Size: size}, nil
}

// download writes the archive that the provider's registry names to a file.
func (f *Finder) download(ctx context.Context, item bundle.Item, system, processor, file string) error {
	host := strings.SplitN(item.Name, "/", 2)[0]
	var services struct {
		Providers string `json:"providers.v1"`
	}
	base := &url.URL{Scheme: "https", Host: host, Path: "/.well-known/terraform.json"}
	if err := f.ask(ctx, host, base, &services); err != nil {
		return err
	}
	if services.Providers == "" {
		return fmt.Errorf("%s is not a registry of providers", host)
	}
	service, err := base.Parse(services.Providers)
	if err != nil {
		return fmt.Errorf("the registry %s names a wrong URL: %w", host, err)
	}
	at := service.JoinPath(strings.TrimPrefix(item.Name, host), item.Version, "download", system, processor)
	var of struct {
		URL string `json:"download_url"`
	}
	if err := f.ask(ctx, host, at, &of); err != nil {
		return err
	}
	from, err := at.Parse(of.URL)
	if err != nil || of.URL == "" || from.Scheme != "https" && from.Host != at.Host {
		return fmt.Errorf("the registry %s names no https URL of the archive", host)
	}
	ctx, cancel := context.WithTimeout(ctx, archiveTime)
	defer cancel()
	body, err := f.get(ctx, "", from)
	if err != nil {
		return err
	}
	defer body.Close()
	w, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("store the archive: %w", err)
	}
	n, err := io.Copy(w, io.LimitReader(body, maxArchive+1))
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("download the archive: %w", err)
	}
	if n > maxArchive {
		return fmt.Errorf("the archive has more than %d bytes", int64(maxArchive))
	}
	return nil
}

// ask reads an answer in JSON.
func (f *Finder) ask(ctx context.Context, host string, at *url.URL, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	token := ""
	if f.Token != nil && at.Host == host {
		token = f.Token(host)
	}
	body, err := f.get(ctx, token, at)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("read the answer of the registry %s: %w", at.Host, err)
	}
	return nil
}

// get returns the body of an answer. It repeats a request that the server did not answer, or answered with 429 or 5xx, four times.
func (f *Finder) get(ctx context.Context, token string, at *url.URL) (io.ReadCloser, error) {
	policy := retry.Policy{First: cmp.Or(f.Pause, firstPause), Longest: longestPause, Tries: 5, Passing: func(err error) bool {
		status, answered := errors.AsType[statusError](err)
		return !answered || status.code == http.StatusTooManyRequests || status.code >= 500
	}}
	return retry.Do(ctx, policy, func(ctx context.Context) (io.ReadCloser, error) { return f.try(ctx, token, at) })
}

func (f *Finder) try(ctx context.Context, token string, at *url.URL) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok { // its URL can have a signature
			err = e.Err
		}
		return nil, fmt.Errorf("ask %s: %w", at.Host, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	resp.Body.Close()
	failed := statusError{at.Host, resp.StatusCode}
	if resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%w: %w", errAbsent, failed)
	}
	return nil, failed
}
