package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/plugin"
)

const (
	maxIndex = 32 << 20 // bytes of the index of a repository of charts
	maxChart = 20 << 20 // bytes of a chart's archive; Helm has the same limit
	// chartLayer is the media type of a chart's archive in a registry (Helm's documentation of OCI registries).
	chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	// fetchFor bounds the requests for one chart, with their repetitions.
	fetchFor = 2 * time.Minute
)

// fetchChart writes the files of the chart to the empty folder. It returns the digest of the chart's archive.
func (p *Plugin) fetchChart(ctx context.Context, spec plugin.Spec, env plugin.Env, folder string) (revision string, err error) {
	from := spec.Build.From
	fmt.Fprintf(env.Log, "fetching chart %s %s of %s\n", from.Chart, from.Ref, from.URL)
	bounded, cancel := context.WithTimeout(ctx, fetchFor)
	defer cancel()
	archive, err := p.fetcher(spec, env).chart(bounded, from)
	if ctx.Err() != nil {
		return "", fmt.Errorf("fetch the chart: %w", ctx.Err())
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(archive)
	return "sha256:" + hex.EncodeToString(sum[:]), unpackChart(archive, env.Workspace, folder)
}

// chart returns the chart's archive.
func (f fetcher) chart(ctx context.Context, from events.Origin) ([]byte, error) {
	if strings.HasPrefix(from.URL, ociPrefix) {
		return f.fromRegistry(ctx, from)
	}
	return f.fromRepository(ctx, from)
}

// fromRegistry gets a chart from an OCI registry.
func (f fetcher) fromRegistry(ctx context.Context, from events.Origin) ([]byte, error) {
	tag := strings.ReplaceAll(from.Ref, "+", "_") // a tag has no "+"; Helm writes "_"
	ref, err := name.NewTag(strings.TrimPrefix(from.URL, ociPrefix)+":"+tag, name.StrictValidation)
	if err != nil {
		return nil, unavailable(err, "%s has no valid address of a chart: %v", from.URL, err)
	}
	img, err := remote.Image(ref, f.registryOptions(ctx, originHost(from))...)
	if err != nil {
		return nil, unavailable(err, "the registry does not return chart %s in version %s: %v", from.URL, from.Ref, err)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, unavailable(err, "the registry's manifest of %s cannot be read: %v", ref, err)
	}
	for _, l := range layers {
		if m, err := l.MediaType(); err != nil || string(m) != chartLayer {
			continue
		}
		content, err := l.Compressed() // it verifies the digest at its end
		if err != nil {
			return nil, unavailable(err, "the registry does not return the archive of chart %s: %v", ref, err)
		}
		archive, err := atMost(content, maxChart)
		if err = errors.Join(err, content.Close()); err != nil {
			return nil, unavailable(err, "the registry does not return the archive of chart %s: %v", ref, err)
		}
		return archive, nil
	}
	return nil, plugin.Errorf(fairlead.ReasonSourceInvalid, "%s is no chart: it has no layer of type %s", ref, chartLayer)
}

// index is the part of a repository's index that a build needs.
type index struct {
	Entries map[string][]struct {
		Version string   `yaml:"version"`
		URLs    []string `yaml:"urls"`
		Digest  string   `yaml:"digest"`
	} `yaml:"entries"`
}

// fromRepository gets a chart from a repository of charts: a server with the file index.yaml.
func (f fetcher) fromRepository(ctx context.Context, from events.Origin) ([]byte, error) {
	base, err := url.Parse(strings.TrimSuffix(from.URL, "/") + "/")
	if err != nil || !tfmodule.SafeURL(base) {
		return nil, unavailable(err, "%s is not an https URL of a repository of charts", from.URL)
	}
	raw, err := f.get(ctx, base.JoinPath("index.yaml"), maxIndex)
	if err != nil {
		return nil, unavailable(err, "the index of the repository %s cannot be fetched: %v", from.URL, err)
	}
	var idx index
	if err := yaml.Unmarshal(raw, &idx); err != nil {
		return nil, unavailable(err, "the index of the repository %s is not YAML", from.URL)
	}
	for _, e := range idx.Entries[from.Chart] {
		if strings.TrimPrefix(e.Version, "v") != strings.TrimPrefix(from.Ref, "v") || len(e.URLs) == 0 {
			continue
		}
		at, err := base.Parse(e.URLs[0])
		if err != nil || !tfmodule.SafeURL(at) {
			return nil, unavailable(err, "the index of the repository %s has no https URL for chart %s %s", from.URL, from.Chart, from.Ref)
		}
		archive, err := f.get(ctx, at, maxChart)
		if err != nil {
			return nil, unavailable(err, "chart %s %s cannot be fetched: %v", from.Chart, from.Ref, err)
		}
		sum := sha256.Sum256(archive)
		if want := strings.TrimPrefix(e.Digest, "sha256:"); want != "" && !strings.EqualFold(want, hex.EncodeToString(sum[:])) {
			return nil, plugin.Errorf(fairlead.ReasonSourceInvalid, "the archive of chart %s %s has the digest %x, and the repository's index names %.64s", from.Chart, from.Ref, sum, want)
		}
		return archive, nil
	}
	if len(idx.Entries[from.Chart]) == 0 {
		return nil, unavailable(nil, "the repository %s has no chart %s", from.URL, from.Chart)
	}
	return nil, unavailable(nil, "the repository %s has no version %s of chart %s", from.URL, from.Ref, from.Chart)
}
