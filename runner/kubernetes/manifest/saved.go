package manifest

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

const savedV = 1

// saved is a plan as Apply reads it. Two plans of the same files and the same content of the cluster have the same bytes. So it
// has no resource versions: they rise with each report of a status.
type saved struct {
	V         int             `json:"v"`
	Owner     string          `json:"owner"`
	Namespace string          `json:"namespace"`
	Destroy   bool            `json:"destroy,omitempty"`
	Base      *changeset.Base `json:"base,omitempty"`
	Objects   []savedObject   `json:"objects,omitempty"`  // all that the component wants, in the order of the apply
	Removals  []removal       `json:"removals,omitempty"` // in the order of the deletions
}

// savedObject is an object that the component wants.
type savedObject struct {
	Action changeset.Action `json:"action,omitempty"` // create, update, replace or import; "": unchanged
	Ref    ref              `json:"ref"`
	Place  string           `json:"place"`            // in the component's files, for messages
	Object map[string]any   `json:"object,omitempty"` // absent for an unchanged object
	Live   string           `json:"live,omitempty"`   // digest of the object in the cluster; "": it did not exist, or is unchanged
}

func (o savedObject) unstructured() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: o.Object}
}

// removal is an object that the component no longer wants.
type removal struct {
	Ref    ref       `json:"ref"`
	UID    types.UID `json:"uid"`
	Forget bool      `json:"forget,omitempty"` // the object stays
	Live   string    `json:"live"`             // digest of the object in the cluster

	reason string
	live   *unstructured.Unstructured
}

func (s saved) encode() ([]byte, error) { return json.Marshal(s) }

// decodeSaved reads a saved plan. The caller has verified that it is the approved one.
func decodeSaved(b []byte) (saved, error) {
	var s saved
	// The decoder of Kubernetes keeps whole numbers whole.
	if err := utiljson.Unmarshal(b, &s); err != nil {
		return saved{}, &plugin.Error{Reason: fairlead.ReasonPlanDigest, Err: err, Message: "the saved plan is damaged: plan again"}
	}
	if s.V != savedV {
		return saved{}, plugin.Errorf(fairlead.ReasonPlanElsewhere, "the saved plan has the form %d, and this runner knows the form %d: plan again", s.V, savedV)
	}
	return s, nil
}
