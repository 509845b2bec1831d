package helm

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The labels of a release's record. Helm copies labels from one revision to the next, also if a person upgrades by hand, so
// labelRevision names the revision for which the others were written.
const (
	labelInstall   = "fairlead.dev/install"
	labelComponent = "fairlead.dev/component"
	labelJob       = "fairlead.dev/job" // with labelEpoch: the attempt that owns the release
	labelEpoch     = "fairlead.dev/epoch"
	labelRevision  = "fairlead.dev/revision"
	labelChart     = "fairlead.dev/chart"      // digest of the chart's files
	labelValues    = "fairlead.dev/values"     // digest of the values
	labelKube      = "fairlead.dev/kubernetes" // version of the cluster
	labelOperation = "fairlead.dev/operation"  // install or upgrade
)

// maxRecord limits the unpacked record. A record in a Secret has at most 1 MiB packed.
const maxRecord = 128 << 20

// record is one revision of the release, as Helm stores it in a Secret.
type record struct {
	rel    *release.Release
	name   string // of the Secret
	uid    string
	digest string // of the stored release
	labels map[string]string
}

func (r *record) status() rcommon.Status { return r.rel.Info.Status }

// interrupted reports whether an operation on the revision has begun and not ended.
func (r *record) interrupted() bool {
	return r.status().IsPending() || r.status() == rcommon.StatusUninstalling || r.status() == rcommon.StatusUnknown
}

// own returns the value of a label that was written for this revision.
func (r *record) own(label string) string {
	if r.labels[labelRevision] != strconv.Itoa(r.rel.Version) {
		return ""
	}
	return r.labels[label]
}

// revisions lists the records of a release, the newest first.
type revisions []*record

func (rs revisions) last() *record {
	if len(rs) == 0 {
		return nil
	}
	return rs[0]
}

// deployed returns the newest deployed revision, or nil.
func (rs revisions) deployed() *record {
	i := slices.IndexFunc(rs, func(r *record) bool { return r.status() == rcommon.StatusDeployed })
	if i < 0 {
		return nil
	}
	return rs[i]
}

func (e *Engine) selector() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: labels.Set{"name": e.Release, "owner": "helm"}.AsSelector().String()}
}

// revisions reads the release's records. It refuses a release that belongs to another owner.
func (e *Engine) revisions(ctx context.Context, c *connection) (revisions, error) {
	list, err := c.secrets.List(ctx, e.selector())
	if err != nil {
		return nil, err
	}
	var all revisions
	for _, s := range list.Items {
		data := s.Data["release"]
		rel, err := decodeRelease(data)
		if err != nil || rel.Info == nil || rel.Chart == nil || rel.Chart.Metadata == nil {
			return nil, &plugin.Error{Reason: fairlead.ReasonHelmFailed, Err: err, Message: fmt.Sprintf(
				"The Secret %s in namespace %s holds no readable Helm release. Restore it, or delete it by hand if the release has newer revisions.", s.Name, e.Namespace)}
		}
		sum := sha256.Sum256(data)
		all = append(all, &record{rel: rel, name: s.Name, uid: string(s.UID), digest: hex.EncodeToString(sum[:]), labels: s.Labels})
	}
	slices.SortFunc(all, func(a, b *record) int { return b.rel.Version - a.rel.Version })
	if last := all.last(); last != nil {
		for label, own := range map[string]string{labelInstall: e.Owner.Install, labelComponent: e.Owner.Component} {
			if v, ok := last.labels[label]; ok && v != labelValue(own) {
				return nil, plugin.Errorf(fairlead.ReasonObjectOwned,
					"The release %s in namespace %s belongs to %s %s of another install or component. Give this component another release name or namespace.",
					e.Release, e.Namespace, label, v)
			}
		}
	}
	return all, nil
}

// labelValue returns s, or its digest if s is no valid value of a label.
func labelValue(s string) string {
	if len(validation.IsValidLabelValue(s)) == 0 {
		return s
	}
	return short(s)
}

// short returns a digest that fits into a label.
func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:20])
}

// decodeRelease reads Helm's form of a stored release: JSON, compressed, in base64.
func decodeRelease(data []byte) (*release.Release, error) {
	packed, err := base64.StdEncoding.AppendDecode(nil, data)
	if err != nil {
		return nil, err
	}
	var r io.Reader = bytes.NewReader(packed)
	if bytes.HasPrefix(packed, []byte{0x1f, 0x8b, 0x08}) {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(io.LimitReader(r, maxRecord+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxRecord {
		return nil, errors.New("the record is too large")
	}
	var rel release.Release
	return &rel, json.Unmarshal(text, &rel)
}

// storedSize returns the number of bytes that a release has in Helm's form.
func storedSize(rel *release.Release) (int, error) {
	text, err := json.Marshal(rel)
	if err != nil {
		return 0, err
	}
	var n counter
	w, err := gzip.NewWriterLevel(&n, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	if _, err := w.Write(text); err != nil {
		return 0, err
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	return base64.StdEncoding.EncodedLen(int(n)), nil
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
