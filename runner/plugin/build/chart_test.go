package build_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// archived returns a chart's archive with the files, by path.
func archived(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const chartYAML = "apiVersion: v2\nname: web\nversion: 1.2.0\n"

// charts is a server with a repository of charts. Its answers can be changed by path.
func charts(t *testing.T, archive []byte, change func(w http.ResponseWriter, r *http.Request) (done bool)) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if change != nil && change(w, r) {
			return
		}
		switch r.URL.Path {
		case "/charts/index.yaml":
			fmt.Fprintf(w, "apiVersion: v1\nentries:\n  web:\n    - {version: 1.3.0, urls: [gone.tgz]}\n    - {version: v1.2.0, urls: [files/web-1.2.0.tgz], digest: %x}\n", sha256.Sum256(archive))
		case "/charts/files/web-1.2.0.tgz":
			_, _ = w.Write(archive)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/charts"
}

// chart returns the spec of a build of the chart web.
func (h *host) chart(url, version string, change ...func(*events.JobSpec)) plugin.Spec {
	return h.spec("", "", slices.Concat([]func(*events.JobSpec){func(s *events.JobSpec) {
		s.Build.Type, s.Build.From = "helm", events.Origin{Kind: events.OriginChart, URL: url, Chart: "web", Ref: version}
		if strings.HasPrefix(url, "oci://") {
			s.Build.From.Chart = ""
		}
	}}, change)...)
}

func TestChartIsFetchedFromARepositoryAndARegistry(t *testing.T) {
	h := newHost(t)
	archive := archived(t, "web/Chart.yaml", chartYAML, "web/templates/a.yaml", "kind: ConfigMap\n", "web/charts/sub/Chart.yaml", chartYAML)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(archive))

	oci := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer oci.Close()
	at := strings.TrimPrefix(oci.URL, "http://") + "/acme/web"
	ref, err := name.NewTag(at + ":1.2.0_build.1") // Helm writes "_" for "+"
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(empty.Image, "application/vnd.cncf.helm.config.v1+json"),
		static.NewLayer([]byte("provenance"), "application/vnd.cncf.helm.chart.provenance.v1.prov"), static.NewLayer(archive, types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}

	var artifacts []string
	for name, spec := range map[string]plugin.Spec{
		"a repository": h.chart(charts(t, archive, nil), "1.2.0"),
		"a registry":   h.chart("oci://"+at, "1.2.0+build.1"),
	} {
		res, log, err := h.run(t, spec)
		if err != nil || res.Built.Revision != digest {
			t.Fatalf("%s: %+v, %v, want the revision %s\n%s", name, res.Built, err, digest, log)
		}
		artifacts = append(artifacts, res.Built.Artifact)
	}
	if artifacts[0] != artifacts[1] {
		t.Errorf("the same chart has the artifacts %v", artifacts)
	}
}

func TestWhatABuildRefusesOfCharts(t *testing.T) {
	h := newHost(t)
	good := archived(t, "web/Chart.yaml", chartYAML)
	oci := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer oci.Close()
	image, err := name.NewTag(strings.TrimPrefix(oci.URL, "http://") + "/acme/image:1.2.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(image, empty.Image); err != nil {
		t.Fatal(err)
	}
	always := func(status int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
	}
	for name, tc := range map[string]struct {
		spec plugin.Spec
		want fairlead.Reason
		says string
	}{
		"no such version":           {h.chart(charts(t, good, nil), "9.9.9"), fairlead.ReasonSourceUnavailable, "has no version 9.9.9"},
		"no such chart":             {h.chart(charts(t, good, nil), "1.2.0", func(s *events.JobSpec) { s.Build.From.Chart = "api" }), fairlead.ReasonSourceUnavailable, "has no chart api"},
		"a version without archive": {h.chart(charts(t, good, nil), "1.3.0"), fairlead.ReasonSourceUnavailable, "404"},
		"a repository that refuses": {h.chart(charts(t, good, always(403)), "1.2.0"), fairlead.ReasonSourceUnavailable, "403"},
		"an index that is no YAML": {h.chart(charts(t, good, func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, "\x00<html>")
			return true
		}), "1.2.0"), fairlead.ReasonSourceUnavailable, "is not YAML"},
		"another archive than the index names": {h.chart(charts(t, good, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, ".tgz") {
				_, _ = w.Write(archived(t, "web/Chart.yaml", chartYAML+"description: other\n"))
				return true
			}
			return false
		}), "1.2.0"), fairlead.ReasonSourceInvalid, "the repository's index names"},
		"an index that sends the build elsewhere without TLS": {h.chart(charts(t, good, func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, "entries: {web: [{version: 1.2.0, urls: ['http://charts.example.com/web.tgz']}]}\n")
			return true
		}), "1.2.0"), fairlead.ReasonSourceUnavailable, "no https URL"},
		"an archive that is no archive":         {h.chart(charts(t, []byte("<html>"), nil), "1.2.0"), fairlead.ReasonSourceInvalid, "not compressed"},
		"an archive with a path out of it":      {h.chart(charts(t, archived(t, "web/Chart.yaml", chartYAML, "../../evil", "x"), nil), "1.2.0"), fairlead.ReasonSourceInvalid, "unpacked"},
		"an archive with two charts at its top": {h.chart(charts(t, archived(t, "web/Chart.yaml", chartYAML, "api/Chart.yaml", chartYAML), nil), "1.2.0"), fairlead.ReasonSourceInvalid, "one chart"},
		"an archive without Chart.yaml":         {h.chart(charts(t, archived(t, "web/values.yaml", "a: 1\n"), nil), "1.2.0"), fairlead.ReasonSourceInvalid, "Chart.yaml"},
		"an image that is no chart":             {h.chart("oci://"+image.Context().Name(), "1.2.0"), fairlead.ReasonSourceInvalid, "is no chart"},
		"no such chart in the registry":         {h.chart("oci://"+image.Context().Name(), "2.0.0"), fairlead.ReasonSourceUnavailable, "does not return"},
		"a kind that a newer control plane has": {h.chart("https://x.example.com", "1.2.0", func(s *events.JobSpec) { s.Build.From.Kind = "tape" }), fairlead.ReasonSpecInvalid, "update it"},
	} {
		t.Run(name, func(t *testing.T) {
			res, log, err := h.run(t, tc.spec)
			if plugin.ReasonOf(err) != tc.want || !strings.Contains(fmt.Sprint(err), tc.says) || res.Built != nil {
				t.Errorf("%+v, %v (%s)\n%s", res.Built, err, plugin.ReasonOf(err), log)
			}
		})
	}
}

// A server that is overloaded for a moment does not fail a build.
func TestBuildRepeatsWhatAServerRefusesForAMoment(t *testing.T) {
	h := newHost(t)
	var asked atomic.Int64
	url := charts(t, archived(t, "web/Chart.yaml", chartYAML), func(w http.ResponseWriter, _ *http.Request) bool {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case 3:
			panic(http.ErrAbortHandler) // the connection breaks
		default:
			return false
		}
		return true
	})
	if res, log, err := h.run(t, h.chart(url, "1.2.0")); err != nil || asked.Load() != 4 {
		t.Errorf("%+v, %v after %d requests\n%s", res.Built, err, asked.Load(), log)
	}
}

// A private repository gets the password, and the other server that has its archives does not.
func TestOnlyTheRepositoryGetsThePassword(t *testing.T) {
	h := newHost(t)
	archive := archived(t, "web/Chart.yaml", chartYAML)
	var stolen atomic.Bool
	files := charts(t, archive, func(_ http.ResponseWriter, r *http.Request) bool {
		if _, _, ok := r.BasicAuth(); ok {
			stolen.Store(true)
		}
		return false
	})
	private := charts(t, archive, func(w http.ResponseWriter, r *http.Request) bool {
		if user, given, _ := r.BasicAuth(); user != "ann" || given != password {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if strings.HasSuffix(r.URL.Path, ".tgz") {
			http.Redirect(w, r, files+"/files/web-1.2.0.tgz", http.StatusFound)
			return true
		}
		return false
	})
	if _, log, err := h.run(t, h.chart(private, "1.2.0")); plugin.ReasonOf(err) != fairlead.ReasonSourceUnavailable {
		t.Errorf("without a password: %v\n%s", err, log)
	}
	_, log, err := h.run(t, h.chart(private, "1.2.0", func(s *events.JobSpec) {
		token("ann:" + password)(s)
	}))
	if err != nil || stolen.Load() {
		t.Errorf("%v; the other server got the password: %v\n%s", err, stolen.Load(), log)
	}
}
