package runnerspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// StorageKind is a kind of state storage.
type StorageKind string

// The kinds of state storage.
const (
	S3State         StorageKind = "s3"         // a bucket of Amazon S3, or of a server with the same API
	GCSState        StorageKind = "gcs"        // a bucket of Google Cloud Storage
	AzureState      StorageKind = "azurerm"    // a container of Azure Blob Storage
	KubernetesState StorageKind = "kubernetes" // Secrets in the cluster of the runner
	HTTPState       StorageKind = "http"       // the control plane stores them encrypted
	LocalState      StorageKind = "local"      // files of the runner's machine
)

// StorageKinds returns the kinds of state storage, in the order of the documentation.
func StorageKinds() []StorageKind {
	return []StorageKind{S3State, GCSState, AzureState, KubernetesState, HTTPState, LocalState}
}

// Storage is the state_storage_configuration of one kind: a pointer to one of the types below.
type Storage interface {
	Kind() StorageKind
	// Place identifies the storage among the storages of its kind. Two storages with equal places hold the same states.
	// The parameter runner is part of the place if each runner has its own storage.
	Place(runner string) string
}

// newStorage returns an empty configuration of the kind, or nil for an unknown kind.
func newStorage(k StorageKind) Storage {
	return map[StorageKind]Storage{
		S3State: &S3Storage{}, GCSState: &GCSStorage{}, AzureState: &AzureStorage{},
		KubernetesState: &KubernetesStorage{}, HTTPState: &HTTPStorage{}, LocalState: &LocalStorage{},
	}[k]
}

// DecodeStorage reads a state storage from the output of json.Marshal. It checks only the kind, because the other
// fields were checked before the storage was written.
func DecodeStorage(data []byte) (Storage, error) {
	var kind StorageCommon
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, fmt.Errorf("decode a state storage: %w", err)
	}
	s := newStorage(kind.Type)
	if s == nil {
		return nil, fmt.Errorf("decode a state storage: there is no kind %q", kind.Type)
	}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("decode a state storage: %w", err)
	}
	return s, nil
}

// StorageCommon holds the fields that the configurations of all state storages have.
type StorageCommon struct {
	Type StorageKind `json:"type" must:"true" doc:"The kind of the state storage."`
}

// Kind returns the kind of the storage, its field type.
func (c *StorageCommon) Kind() StorageKind { return c.Type }

// S3Storage keeps states in a bucket. Conditional writes of S3 lock them.
type S3Storage struct {
	StorageCommon
	Bucket     string `json:"bucket" must:"true" check:"bucket" doc:"Bucket. Enable versioning."`
	Region     string `json:"region" must:"true" check:"region" doc:"AWS region of the bucket."`
	PathPrefix string `json:"path_prefix,omitempty" check:"prefix" alias:"key_prefix prefix" doc:"Prefix of the states' keys, without slashes at its ends."`
	KMSKeyID   string `json:"kms_key_id,omitempty" check:"nonempty" alias:"kms_key" doc:"Key that encrypts the states. If absent: the bucket's default."`
	Endpoint   string `json:"endpoint,omitempty" check:"url" doc:"URL of an S3-compatible server. If absent: AWS."`
}

// Place is the endpoint, the bucket and the prefix.
func (s *S3Storage) Place(string) string {
	return strings.TrimSuffix(s.Endpoint, "/") + "//" + s.Bucket + "/" + s.PathPrefix
}

// GCSStorage keeps states in a bucket of Google Cloud Storage.
type GCSStorage struct {
	StorageCommon
	Bucket     string `json:"bucket" must:"true" check:"gcsbucket" doc:"Bucket. Enable versioning."`
	PathPrefix string `json:"path_prefix,omitempty" check:"prefix" alias:"prefix" doc:"Prefix of the states' names, without slashes at its ends."`
	KMSKey     string `json:"kms_key,omitempty" check:"nonempty" alias:"kms_encryption_key" doc:"Key that encrypts the states. If absent: the bucket's default."`
}

// Place is the bucket and the prefix.
func (s *GCSStorage) Place(string) string { return "//" + s.Bucket + "/" + s.PathPrefix }

// AzureStorage keeps states in a container of Azure Blob Storage.
type AzureStorage struct {
	StorageCommon
	StorageAccountName string `json:"storage_account_name" must:"true" check:"storageaccount" alias:"storage_account" doc:"Storage account."`
	ContainerName      string `json:"container_name" must:"true" check:"container" alias:"container" doc:"Container."`
	ResourceGroupName  string `json:"resource_group_name,omitempty" check:"nonempty" alias:"resource_group" doc:"Resource group of the account, if the account must be looked up."`
	SubscriptionID     string `json:"subscription_id,omitempty" check:"uuid" doc:"Subscription of the account, if the account must be looked up."`
	PathPrefix         string `json:"path_prefix,omitempty" check:"prefix" alias:"prefix" doc:"Prefix of the states' names, without slashes at its ends."`
}

// Place consists of the account, the container and the prefix. The name of an account is unique in Azure.
func (s *AzureStorage) Place(string) string {
	return "//" + s.StorageAccountName + "/" + s.ContainerName + "/" + s.PathPrefix
}

// KubernetesStorage keeps states in Secrets of the cluster in which jobs run.
type KubernetesStorage struct {
	StorageCommon
	Namespace string `json:"namespace" must:"true" check:"dns" doc:"Namespace of the Secrets."`
}

// Place consists of the runner and the namespace. The runner is included because each runner has its own cluster.
func (s *KubernetesStorage) Place(runner string) string { return runner + "/" + s.Namespace }

// HTTPStorage keeps states in the control plane.
type HTTPStorage struct{ StorageCommon }

// Place is empty: there is one control plane.
func (s *HTTPStorage) Place(string) string { return "" }

// LocalStorage keeps states in files of the runner's machine.
type LocalStorage struct {
	StorageCommon
	Path string `json:"path,omitempty" check:"abspath" alias:"folder directory" doc:"Folder of the states. It must outlive the agent. If absent: the folder state in the agent's data folder."`
}

// Place consists of the runner and the folder. The runner is included because each runner has its own machine.
func (s *LocalStorage) Place(runner string) string { return runner + ":" + s.Path }

// matrix maps a runner kind to the state storages that it cannot use, each with the reason. All other combinations are
// allowed.
func matrix() map[Kind]map[StorageKind]string {
	const (
		ownIdentity = "an ECS task has no identity that this storage accepts"
		noCluster   = "its jobs do not run in a cluster"
		noDisk      = "its jobs have no disk that outlives them"
	)
	m := map[Kind]map[StorageKind]string{}
	for _, k := range Kinds() {
		m[k] = map[StorageKind]string{}
		switch k {
		case AWSECS:
			m[k][GCSState], m[k][AzureState], m[k][KubernetesState], m[k][LocalState] = ownIdentity, ownIdentity, noCluster, noDisk
		case Docker, Local:
			m[k][KubernetesState] = noCluster
		default:
			m[k][LocalState] = noDisk
		}
	}
	return m
}

// Compatible reports whether a runner of the kind may use the state storage. If it may not, why is the reason.
func Compatible(k Kind, s StorageKind) (ok bool, why string) {
	if !slices.Contains(Kinds(), k) {
		return false, fmt.Sprintf("there is no runner kind %q", k)
	}
	if !slices.Contains(StorageKinds(), s) {
		return false, fmt.Sprintf("there is no kind of state storage %q", s)
	}
	why = matrix()[k][s]
	return why == "", why
}

// storagesOf lists the state storages that a kind may use.
func storagesOf(k Kind) []string {
	var can []string
	for _, s := range StorageKinds() {
		if ok, _ := Compatible(k, s); ok {
			can = append(can, string(s))
		}
	}
	return can
}

// Matrix renders as text which runner kinds may use which state storages, and the reasons for the others. The text ends
// with a line feed.
func Matrix() string {
	return matrixText(StorageKinds(), func(k Kind, s StorageKind) (text, note string) {
		if ok, why := Compatible(k, s); !ok {
			return "no", why
		}
		return "yes", ""
	})
}

// matrixText renders a table with a row for each runner kind. cell returns the text of a cell and its note, if it has
// one. Equal notes are printed once, below the table.
func matrixText[C ~string](columns []C, cell func(Kind, C) (text, note string)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var notes []string
	row := []string{"RUNNER"}
	for _, c := range columns {
		row = append(row, string(c))
	}
	fmt.Fprintln(w, strings.Join(row, "\t"))
	for _, k := range Kinds() {
		row := []string{string(k)}
		for _, c := range columns {
			text, note := cell(k, c)
			if note != "" {
				i := slices.Index(notes, note)
				if i < 0 {
					i, notes = len(notes), append(notes, note)
				}
				text += fmt.Sprintf(" (%d)", i+1)
			}
			row = append(row, text)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	b.WriteByte('\n')
	for i, note := range notes {
		fmt.Fprintf(&b, "(%d) %s\n", i+1, note)
	}
	return b.String()
}
