package manifest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The names of what the engine writes to the cluster.
const (
	ownerAnnotation = "fairlead.dev/owner" // INSTALL/COMPONENT, on every object of a component
	installLabel    = "fairlead.dev/install"
	componentLabel  = "fairlead.dev/component"
	inventoryType   = "fairlead.dev/inventory" // type of the Secret
	inventoryKey    = "inventory"
	inventoryV      = 1
)

// maxInventory is the largest inventory in bytes. The API server refuses a Secret with more than 1 MiB of data.
const maxInventory = 1 << 20

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// record is the content of an inventory: every object that the component may have created, and the attempt that wrote it last.
type record struct {
	V         int    `json:"v"`
	Install   string `json:"install"`
	Component string `json:"component"`
	Revision  int64  `json:"revision"` // raised by each write
	Job       string `json:"job"`      // of the attempt
	Epoch     int64  `json:"epoch"`    // of the attempt
	Objects   []ref  `json:"objects"`
}

// inventory is a record as it is in the cluster.
type inventory struct {
	record
	uid             string // "": the cluster has none
	resourceVersion string
}

// base returns what a plan was made on; nil: there was no inventory.
func (i inventory) base() *changeset.Base {
	if i.uid == "" {
		return nil
	}
	return &changeset.Base{Lineage: i.uid, Revision: i.Revision}
}

func (i inventory) has(r ref) bool {
	return slices.ContainsFunc(i.Objects, func(o ref) bool { return o.identity() == r.identity() })
}

// inventoryName returns the name of the Secret. It is a digest, because the names of installs and components are not always names
// of objects.
func (o Owner) inventoryName() string {
	sum := sha256.Sum256([]byte(o.String()))
	return "fairlead-inventory-" + hex.EncodeToString(sum[:8])
}

func (r *run) inventoryRef() ref {
	return ref{Version: "v1", Kind: "Secret", Namespace: r.Namespace, Name: r.Owner.inventoryName()}
}

// encode returns the inventory's data, or a typed error if it is too large for a Secret.
func (c record) encode() ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if len(b) > maxInventory {
		return nil, plugin.Errorf(fairlead.ReasonInventoryTooLarge,
			"the list of the component's %d objects has %d KiB, and a Secret holds at most %d KiB: split the component. After a change of many names, the list also has the earlier objects: then remove them in a version of their own",
			len(c.Objects), len(b)>>10, maxInventory>>10)
	}
	return b, nil
}

// readInventory reads the component's inventory. If there is none, it returns an empty one.
func (r *run) readInventory(ctx context.Context) (inventory, error) {
	at := r.inventoryRef()
	u, err := call(ctx, r, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.cluster.Objects.Resource(secrets).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return inventory{record: record{V: inventoryV, Install: r.Owner.Install, Component: r.Owner.Component}}, nil
	}
	if err != nil {
		return inventory{}, r.failed(ctx, action{verb: "get", did: "read the inventory", ref: at, resource: secrets}, err)
	}
	return r.decodeInventory(u)
}

func (r *run) decodeInventory(u *unstructured.Unstructured) (inventory, error) {
	unusable := func(why string) error {
		return plugin.Errorf(fairlead.ReasonInventoryUnusable, "the inventory %s %s. Restore it from a backup; or delete it, and the next plan takes over the objects that exist", r.inventoryRef(), why)
	}
	encoded, _, _ := unstructured.NestedString(u.Object, "data", inventoryKey)
	text, err := base64.StdEncoding.DecodeString(encoded)
	inv := inventory{uid: string(u.GetUID()), resourceVersion: u.GetResourceVersion()}
	switch {
	case err != nil || json.Unmarshal(text, &inv.record) != nil:
		return inventory{}, unusable("is damaged")
	case inv.V != inventoryV:
		return inventory{}, plugin.Errorf(fairlead.ReasonInventoryUnusable, "the inventory %s has the form %d, which this runner does not know: update the runner", r.inventoryRef(), inv.V)
	case inv.Install != r.Owner.Install || inv.Component != r.Owner.Component:
		return inventory{}, unusable("belongs to another component")
	}
	return inv, nil
}

// writeInventory writes the next revision of the inventory, with these objects and this attempt. It succeeds only if the inventory
// is still the one that was read. A repeat after an answer that was lost recognizes its own write.
func (r *run) writeInventory(ctx context.Context, objects []ref) error {
	next := record{V: inventoryV, Install: r.Owner.Install, Component: r.Owner.Component, Revision: r.inv.Revision + 1,
		Job: r.Attempt.Job, Epoch: r.Attempt.Epoch, Objects: slices.Clone(objects)}
	inOrder(next.Objects, func(o ref) ref { return o })
	text, err := next.encode()
	if err != nil {
		return err
	}
	at := r.inventoryRef()
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": inventoryType,
		"metadata": map[string]any{"name": at.Name, "namespace": at.Namespace,
			"labels": map[string]any{installLabel: r.Owner.Install, componentLabel: r.Owner.Component}},
		"data": map[string]any{inventoryKey: base64.StdEncoding.EncodeToString(text)},
	}}
	client := r.cluster.Objects.Resource(secrets).Namespace(at.Namespace)
	for range attemptsOfConflict {
		var written *unstructured.Unstructured
		verb := "create"
		if r.inv.uid == "" {
			written, err = call(ctx, r, func(ctx context.Context) (*unstructured.Unstructured, error) {
				return client.Create(ctx, secret, metav1.CreateOptions{FieldManager: FieldManager})
			})
		} else {
			verb = "update"
			secret.SetResourceVersion(r.inv.resourceVersion)
			written, err = call(ctx, r, func(ctx context.Context) (*unstructured.Unstructured, error) {
				return client.Update(ctx, secret, metav1.UpdateOptions{FieldManager: FieldManager})
			})
		}
		if err == nil {
			r.inv, err = r.decodeInventory(written)
			return err
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && (!apierrors.IsNotFound(err) || r.inv.uid == "") {
			return r.failed(ctx, action{verb: verb, did: "write the inventory", ref: at, resource: secrets}, err)
		}
		now, err := r.readInventory(ctx)
		switch {
		case err != nil:
			return err
		case now.uid != "" && reflect.DeepEqual(now.record, next):
			r.inv = now
			return nil
		case now.uid != r.inv.uid || !reflect.DeepEqual(now.record, r.inv.record):
			return r.superseded(now)
		}
		r.inv = now // Another program has changed the Secret, and not the record in it.
	}
	return plugin.Errorf(fairlead.ReasonStale, "the inventory %s changes all the time: find out who changes it, then plan again", at)
}

// fence checks that no other attempt has written the inventory. Each write of an apply comes after such a check.
func (r *run) fence(ctx context.Context) error {
	now, err := r.readInventory(ctx)
	if err != nil {
		return err
	}
	if now.uid == "" && r.inv.uid == "" {
		return nil // A destroy of what an apply created before its inventory has none.
	}
	if now.uid != r.inv.uid || now.Job != r.Attempt.Job || now.Epoch != r.Attempt.Epoch || now.Revision != r.inv.Revision {
		return r.superseded(now)
	}
	return nil
}

// superseded returns the error of an attempt that another one has overtaken.
func (r *run) superseded(now inventory) error {
	if now.uid == "" {
		return plugin.Errorf(fairlead.ReasonStale, "the inventory %s was deleted while this attempt worked; it stopped before its next change", r.inventoryRef())
	}
	return plugin.Errorf(fairlead.ReasonStale, "the attempt %d of job %s has taken over the component's objects; this attempt stopped before its next change", now.Epoch, now.Job)
}

// deleteInventory ends a destroy.
func (r *run) deleteInventory(ctx context.Context) error {
	if err := r.fence(ctx); err != nil {
		return err
	}
	at := r.inventoryRef()
	_, err := call(ctx, r, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.cluster.Objects.Resource(secrets).Namespace(at.Namespace).Delete(ctx, at.Name, *onlyIf(r.inv.uid, r.inv.resourceVersion))
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return r.failed(ctx, action{verb: "delete", did: "delete the inventory", ref: at, resource: secrets}, err)
	}
	return nil
}
