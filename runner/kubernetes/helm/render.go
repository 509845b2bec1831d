package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/podimage"
	"github.com/fairlead/fairlead/runner/plugin"
)

const maxRendered = 32 << 20

// rendering is what a chart becomes with its values: everything that Helm needs for an apply.
type rendering struct {
	Metadata *chartv2.Metadata  `json:"metadata"`
	Defaults map[string]any     `json:"defaults"` // the chart's values, with those of its subcharts
	Files    map[string]string  `json:"files"`    // rendered files by path, also the notes
	CRDs     []crdFile          `json:"crds,omitempty"`
	Kube     common.KubeVersion `json:"kube"`

	hooks     []*release.Hook
	manifests []releaseutil.Manifest
}

// crdFile is a file of custom resource definitions. Helm does not render it.
type crdFile struct {
	Name string `json:"name"`
	Data string `json:"data"`
}

// render renders the chart for the release's next revision. mask hides the Secrets that templates read from the cluster.
func (e *Engine) render(ctx context.Context, c *connection, ch *Chart, values map[string]any, revision int, upgrade bool) (r *rendering, mask func(string) string, err error) {
	caps, err := capabilities(c.getter.discovery)
	if err != nil {
		return nil, nil, err
	}
	options := common.ReleaseOptions{Name: e.Release, Namespace: e.Namespace, Revision: revision, IsInstall: !upgrade, IsUpgrade: upgrade}
	loaded, top, err := ch.prepare(values, options, caps)
	if err != nil {
		return nil, nil, err
	}
	all, err := top.Table("Values")
	if err != nil {
		return nil, nil, err
	}
	if err := checkSchema(loaded, all); err != nil {
		return nil, nil, &plugin.Error{Reason: fairlead.ReasonValuesInvalid, Err: err,
			Message: fmt.Sprintf("The values do not fit the schema of the chart: %s Correct the component's values.", sentence(brief(err)))}
	}
	seen := &lookups{}
	cfg := rest.CopyConfig(c.getter.config)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.next = next; return seen })
	files, err := engine.New(cfg).RenderWithContext(ctx, loaded, top)
	if err != nil {
		return nil, nil, invalid("render the chart %s: %w", loaded.Name(), err)
	}
	defaults, err := util.CoalesceValues(loaded, nil)
	if err != nil {
		return nil, nil, err
	}
	r = &rendering{Metadata: loaded.Metadata, Defaults: defaults, Files: map[string]string{}, Kube: caps.KubeVersion}
	if err := r.add(files); err != nil {
		return nil, nil, err
	}
	if err := r.replaceImages(e.Images); err != nil {
		return nil, nil, err
	}
	for _, crd := range loaded.CRDObjects() {
		r.CRDs = append(r.CRDs, crdFile{Name: crd.Filename, Data: string(crd.File.Data)})
	}
	if err := r.sort(); err != nil {
		return nil, nil, err
	}
	return r, seen.mask(), r.checkImages(e.Images)
}

// prepare loads the chart and combines its values with those of a release, for a cluster of that kind.
func (c *Chart) prepare(values map[string]any, options common.ReleaseOptions, caps *common.Capabilities) (*chartv2.Chart, common.Values, error) {
	loaded, err := c.load()
	if err != nil {
		return nil, nil, err
	}
	values, err = copyOf(values) // Helm changes it
	if err != nil {
		return nil, nil, err
	}
	if v := loaded.Metadata.KubeVersion; v != "" && !chartutil.IsCompatibleRange(v, caps.KubeVersion.String()) {
		return nil, nil, plugin.Errorf(fairlead.ReasonChartInvalid, "The chart %s needs Kubernetes %s, and the cluster has %s. Update the cluster, or use another version of the chart.",
			loaded.Name(), v, caps.KubeVersion.String())
	}
	if err := chartutil.ProcessDependencies(loaded, values); err != nil {
		return nil, nil, invalid("process the dependencies of chart %s: %w", loaded.Name(), err)
	}
	top, err := util.ToRenderValuesWithSchemaValidation(loaded, values, options, caps, true)
	if err != nil {
		return nil, nil, invalid("combine the values of chart %s: %w", loaded.Name(), err)
	}
	return loaded, top, nil
}

// add adds what a chart renders to, without empty files and the notes of subcharts.
func (r *rendering) add(files map[string]string) error {
	size := 0
	for name, text := range files {
		if notes := strings.HasSuffix(name, notesFile); notes && name != r.notes() || strings.TrimSpace(text) == "" {
			continue
		}
		if size += len(text); size > maxRendered {
			return invalid("the chart %s renders to more than %d MiB", r.Metadata.Name, maxRendered>>20)
		}
		r.Files[name] = text
	}
	return nil
}

const notesFile = "NOTES.txt"

// notes returns the path of the notes that Helm shows.
func (r *rendering) notes() string { return path.Join(r.Metadata.Name, "templates", notesFile) }

// sort splits the files into hooks and manifests as Helm does.
func (r *rendering) sort() error {
	files := maps.Clone(r.Files)
	delete(files, r.notes())
	var err error
	if r.hooks, r.manifests, err = releaseutil.SortManifests(files, nil, releaseutil.InstallOrder); err != nil {
		return invalid("read the rendered files: %w", err)
	}
	return nil
}

// manifest returns the text that Helm stores as the release's manifest.
func (r *rendering) manifest() string {
	var b strings.Builder
	for _, m := range r.manifests {
		fmt.Fprintf(&b, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	return b.String()
}

// chart returns a chart whose templates are the rendered files as constants: Helm renders it to the same bytes. A
// post-renderer would parse and format each object twice.
func (r *rendering) chart() *chartv2.Chart {
	md := *r.Metadata
	md.Dependencies = nil // Helm would look for them
	md.Annotations = maps.Clone(md.Annotations)
	if names := r.crdNames(); len(names) > 0 {
		if md.Annotations == nil {
			md.Annotations = map[string]string{}
		}
		md.Annotations[annotationCRDs] = strings.Join(names, ",")
	}
	c := &chartv2.Chart{Metadata: &md, Values: r.Defaults}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		c.Templates = append(c.Templates, &common.File{Name: strings.TrimPrefix(name, r.Metadata.Name+"/"), Data: []byte("{{ " + strconv.Quote(r.Files[name]) + " }}")})
	}
	return c
}

// annotationCRDs lists the definitions that were installed from the chart's folder crds. Helm does not record them.
const annotationCRDs = "fairlead.dev/crds"

// check compares what Helm renders from chart with the planned bytes.
func (r *rendering) check() error {
	c := r.chart()
	top, err := util.ToRenderValuesWithSchemaValidation(c, nil, common.ReleaseOptions{}, nil, true)
	if err != nil {
		return err
	}
	files, err := engine.Render(c, top)
	if err != nil {
		return err
	}
	if !maps.Equal(files, r.Files) {
		return invalid("the chart %s renders to a text that Helm would change when it renders it again", r.Metadata.Name)
	}
	return nil
}

// reuse returns the rendering of an existing revision with the same chart and values, or nil if the chart must be rendered.
// A template with a random value or with the revision's number renders differently each time, and a plan of an unchanged
// release must be able to find no change. A newer version of the cluster can lack the kinds that an older one had.
func (e *Engine) reuse(all revisions, ch *Chart, values string, kube common.KubeVersion) (*record, *rendering) {
	for _, rec := range []*record{all.last(), all.deployed()} {
		if rec == nil || rec.own(labelChart) != short(ch.digest) || rec.own(labelValues) != values || rec.own(labelKube) != kubeLabel(kube) {
			continue
		}
		if r, ok := fromRecord(rec.rel, ch); ok {
			r.Kube = kube
			return rec, r
		}
		e.logf("The record of revision %d cannot be used again: the chart is rendered.", rec.rel.Version)
	}
	return nil, nil
}

// fromRecord takes a stored release apart. It reports false unless the parts make the same release again.
func fromRecord(rel *release.Release, ch *Chart) (*rendering, bool) {
	loaded, err := ch.load()
	if err != nil {
		return nil, false
	}
	if err := chartutil.ProcessDependencies(loaded, rel.Config); err != nil {
		return nil, false
	}
	r := &rendering{Metadata: loaded.Metadata, Defaults: rel.Chart.Values, Files: map[string]string{}}
	for _, crd := range loaded.CRDObjects() {
		r.CRDs = append(r.CRDs, crdFile{Name: crd.Filename, Data: string(crd.File.Data)})
	}
	last := map[string]string{} // documents without a line break at the end, which can only be the last of their file
	add := func(name, doc string) {
		if strings.HasSuffix(doc, "\n") {
			r.Files[name] += "---\n" + doc
		} else {
			last[name] += "---\n" + doc
		}
	}
	for _, h := range rel.Hooks {
		add(h.Path, h.Manifest)
	}
	docs := releaseutil.SplitManifests(rel.Manifest)
	for i := range len(docs) {
		source, doc, ok := strings.Cut(docs[fmt.Sprintf("manifest-%d", i)], "\n")
		name, ok2 := strings.CutPrefix(source, "# Source: ")
		if !ok || !ok2 {
			return nil, false
		}
		add(name, strings.TrimSuffix(doc, "\n"))
	}
	for name, doc := range last {
		r.Files[name] += doc
	}
	if rel.Info.Notes != "" {
		r.Files[r.notes()] = rel.Info.Notes
	}
	if r.sort() != nil || r.manifest() != rel.Manifest || !sameHooks(r.hooks, rel.Hooks) {
		return nil, false
	}
	return r, true
}

// sameHooks reports whether two lists have the same hooks in the same order. It ignores when they ran.
func sameHooks(a, b []*release.Hook) bool {
	return slices.EqualFunc(a, b, func(a, b *release.Hook) bool {
		return a.Path == b.Path && a.Manifest == b.Manifest && slices.Equal(a.Events, b.Events)
	})
}

// kubeLabel returns the version of a cluster without its patch.
func kubeLabel(v common.KubeVersion) string { return labelValue(v.Major + "." + v.Minor) }

// kubeVersion reads the version of the cluster.
func kubeVersion(d discovery.ServerVersionInterface) (common.KubeVersion, error) {
	v, err := d.ServerVersion()
	if err != nil {
		return common.KubeVersion{}, err
	}
	return common.KubeVersion{Version: v.GitVersion, Major: v.Major, Minor: v.Minor}, nil
}

// capabilities reads what templates see of the cluster.
func capabilities(d discovery.CachedDiscoveryInterface) (*common.Capabilities, error) {
	v, err := kubeVersion(d)
	if err != nil {
		return nil, err
	}
	versions, err := action.GetVersionSet(d)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	return &common.Capabilities{APIVersions: versions, HelmVersion: common.DefaultCapabilities.HelmVersion, KubeVersion: v}, nil
}

// copyOf copies values through JSON, in which numbers keep their text.
func copyOf(values map[string]any) (map[string]any, error) {
	text, err := json.Marshal(values)
	if err != nil {
		return nil, invalid("encode the values: %w", err)
	}
	return decodeObject(text)
}

// valuesDigest returns the digest of values and of what replaces images, in a form that fits into a label.
func valuesDigest(values map[string]any, images *podimage.Replacement) (string, error) {
	text, err := json.Marshal(values) // with sorted keys
	if err != nil {
		return "", invalid("encode the values: %w", err)
	}
	if len(values) == 0 {
		text = []byte("{}")
	}
	return short(string(text) + images.Key()), nil
}
