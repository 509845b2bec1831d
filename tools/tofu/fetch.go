package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/opentofu/tofudl"
)

// release is a site with releases. Empty strings mean the library's defaults: the
// official site and its signing key. client is required.
type release struct {
	apiURL, mirrorURLTemplate, gpgKey string
	client                            *http.Client
}

const (
	// answerTimeout is the longest time for the list of versions. It is short, because
	// behind a firewall the program must soon build OpenTofu instead.
	answerTimeout = 5 * time.Second
	// downloadTimeout is the longest time for the archive, which has some 30 MB.
	downloadTimeout = 3 * time.Minute
	// maxBody is the longest accepted answer, in bytes.
	maxBody = 256 << 20
)

func officialRelease() release {
	t := http.DefaultTransport.(*http.Transport).Clone() // the standard library's documented type
	t.ResponseHeaderTimeout = 30 * time.Second
	return release{client: &http.Client{Transport: boundedTransport{t}}}
}

// boundedTransport limits answers to maxBody, because the library reads them whole.
type boundedTransport struct{ inner http.RoundTripper }

func (b boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.inner.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxBody)
	}
	return resp, err
}

// fetch downloads the pinned release to path. The library verifies the archive with the
// signed list of checksums.
func (f finder) fetch(ctx context.Context, path string) error {
	options := []tofudl.ConfigOpt{tofudl.ConfigHTTPClient(f.release.client)}
	if f.release.apiURL != "" {
		options = append(options, tofudl.ConfigAPIURL(f.release.apiURL),
			tofudl.ConfigDownloadMirrorURLTemplate(f.release.mirrorURLTemplate), tofudl.ConfigGPGKey(f.release.gpgKey))
	}
	dl, err := tofudl.New(options...)
	if err != nil {
		return err
	}
	version, err := findRelease(ctx, dl)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.log, "downloading OpenTofu %s\n", pinnedVersion)
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	binary, err := dl.DownloadVersion(ctx, version, tofudl.PlatformAuto, tofudl.ArchitectureAuto)
	if err != nil {
		return err
	}
	return os.WriteFile(path, binary, 0o755)
}

func findRelease(ctx context.Context, dl tofudl.Downloader) (tofudl.VersionWithArtifacts, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	versions, err := dl.ListVersions(ctx)
	if err != nil {
		return tofudl.VersionWithArtifacts{}, err
	}
	for _, v := range versions {
		if v.ID == pinnedVersion {
			return v, nil
		}
	}
	return tofudl.VersionWithArtifacts{}, fmt.Errorf("the release site does not list version %s", pinnedVersion)
}
