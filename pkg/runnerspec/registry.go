package runnerspec

import (
	"encoding/json"
	"fmt"
	"strings"
)

// RegistryKind is a kind of registry for the images of installs.
type RegistryKind string

// The kinds of registries.
const (
	OCIRegistry          RegistryKind = "oci"           // any registry that serves the OCI distribution protocol
	ECRRegistry          RegistryKind = "ecr"           // Amazon ECR; the role of the operation is the login
	ControlPlaneRegistry RegistryKind = "control-plane" // a control plane on one machine serves it; the job's own token is the login
)

// RegistryKinds returns the kinds of registries, in the order of the documentation.
func RegistryKinds() []RegistryKind {
	return []RegistryKind{OCIRegistry, ECRRegistry, ControlPlaneRegistry}
}

// ImageRegistry is the registry of one kind: a pointer to one of the types below.
type ImageRegistry interface {
	Kind() RegistryKind
	// URL returns the URL of the registry; "": only the control plane knows it.
	URL() string
	// Repository returns the name of a component's repository. install is the identifier of its install.
	Repository(install, component string) string
}

func newRegistry(k RegistryKind) ImageRegistry {
	return map[RegistryKind]ImageRegistry{OCIRegistry: &RegistryOCI{}, ECRRegistry: &RegistryECR{}, ControlPlaneRegistry: &RegistryControlPlane{}}[k]
}

// DecodeRegistry reads a registry from the output of json.Marshal. It checks only the kind, because the other fields were
// checked before the registry was written.
func DecodeRegistry(data []byte) (ImageRegistry, error) {
	var kind RegistryCommon
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, fmt.Errorf("decode a registry: %w", err)
	}
	r := newRegistry(kind.Type)
	if r == nil {
		return nil, fmt.Errorf("decode a registry: there is no kind %q", kind.Type)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("decode a registry: %w", err)
	}
	return r, nil
}

// RegistryCommon holds the fields that the registries of all kinds have.
type RegistryCommon struct {
	Type   RegistryKind `json:"type" must:"true" doc:"The kind of the registry."`
	Prefix string       `json:"prefix,omitempty" check:"repository" alias:"path_prefix" doc:"Prefix of the repositories' names, without slashes at its ends. The identifier of the install and the component follow."`
}

// Kind returns the kind of the registry, its field type.
func (c *RegistryCommon) Kind() RegistryKind { return c.Type }

// Repository is the prefix, the install and the component. The name of an install can be used again, its identifier cannot.
func (c *RegistryCommon) Repository(install, component string) string {
	return strings.TrimPrefix(c.Prefix+"/"+strings.ToLower(install)+"/"+component, "/")
}

// RegistryOCI is a registry that serves the OCI distribution protocol.
type RegistryOCI struct {
	RegistryCommon
	Address     string `json:"url" must:"true" check:"registry" alias:"host registry" doc:"URL of the registry, without a path. http is for a registry that only a private network reaches."`
	Credentials string `json:"credentials,omitempty" check:"variable" alias:"login password_variable" doc:"Name of an environment variable of jobs that holds the login: USER:PASSWORD, or a Docker configuration such as a pull secret has. Set it in job.secrets, or the customer sets it in the agent's file. If absent: the registry needs no login."`
	CA          string `json:"ca,omitempty" check:"variable" alias:"ca_variable certificate_authority" doc:"Name of an environment variable of jobs that holds certificates in PEM: those of the private CA that signed the registry's certificate. Set it in job.environment or job.secrets, or the customer sets it in the agent's file. Only requests to this registry trust them. If absent: the certificates that the machine trusts."`
}

// URL is the address.
func (r *RegistryOCI) URL() string { return strings.TrimSuffix(r.Address, "/") }

// RegistryECR is a registry of Amazon ECR.
type RegistryECR struct {
	RegistryCommon
	Account string `json:"account" must:"true" check:"account" alias:"registry_id account_id" doc:"AWS account of the registry."`
	Region  string `json:"region" must:"true" check:"region" doc:"AWS region of the registry."`
}

// URL is the endpoint of the account in the region.
func (r *RegistryECR) URL() string {
	domain := "amazonaws.com"
	if strings.HasPrefix(r.Region, "cn-") {
		domain += ".cn"
	}
	return "https://" + r.Account + ".dkr.ecr." + r.Region + "." + domain
}

// RegistryControlPlane is the registry of a control plane on one machine.
type RegistryControlPlane struct {
	Type RegistryKind `json:"type" must:"true" doc:"The kind of the registry."`
}

// Kind returns the kind of the registry, its field type.
func (r *RegistryControlPlane) Kind() RegistryKind { return r.Type }

// URL is empty: a step knows the control plane that it got its job from.
func (r *RegistryControlPlane) URL() string { return "" }

// Repository is the install and the component. The control plane puts the org before them.
func (r *RegistryControlPlane) Repository(install, component string) string {
	return strings.ToLower(install) + "/" + component
}
