package runnerspec

import (
	"fmt"
	"slices"
)

// SandboxKind is a kind of sandbox: what an install stands on.
type SandboxKind string

// The kinds of sandboxes. Those of a cloud have the names of the runners that are made for them.
const (
	OnEKS        SandboxKind = "aws-eks"    // a cluster of Amazon EKS
	OnECS        SandboxKind = "aws-ecs"    // a cluster of Amazon ECS, with its network
	OnAKS        SandboxKind = "azure-aks"  // a cluster of Azure Kubernetes Service
	OnGKE        SandboxKind = "gcp-gke"    // a cluster of Google Kubernetes Engine
	OnKubernetes SandboxKind = "kubernetes" // any other Kubernetes cluster
)

// SandboxKinds returns the kinds of sandboxes, in the order of the documentation.
func SandboxKinds() []SandboxKind { return []SandboxKind{OnEKS, OnECS, OnAKS, OnGKE, OnKubernetes} }

// Fit is whether a kind of runner can run the jobs of an install on a kind of sandbox.
type Fit struct {
	OK  bool
	Why string // the reason if OK is false. If OK is true: a warning, or "".
}

// fits maps a kind of runner to the sandboxes on which it can run. All other combinations are refused.
func fits() map[Kind]map[SandboxKind]Fit {
	const (
		noIdentity = "the jobs have no identity in the cloud; the runner of the sandbox's own kind gives them one"
		notInside  = "the jobs run outside of the cluster and need its public endpoint; a runner in the cluster does not"
		someones   = "the jobs run on the runner's machine, with the credentials that it has; this is for development"
	)
	m := map[Kind]map[SandboxKind]Fit{
		AWSEKS:     {OnEKS: {OK: true}},
		AWSECS:     {OnECS: {OK: true}, OnEKS: {true, notInside}},
		AzureAKS:   {OnAKS: {OK: true}},
		GCPGKE:     {OnGKE: {OK: true}},
		Kubernetes: {OnKubernetes: {OK: true}, OnEKS: {true, noIdentity}, OnAKS: {true, noIdentity}, OnGKE: {true, noIdentity}},
	}
	for _, k := range []Kind{Docker, Local} {
		m[k] = map[SandboxKind]Fit{}
		for _, s := range SandboxKinds() {
			m[k][s] = Fit{true, someones}
		}
	}
	return m
}

// FitOf returns whether a runner of the kind can run the jobs of an install on the sandbox.
func FitOf(k Kind, s SandboxKind) Fit {
	f, ok := fits()[k][s]
	switch {
	case !slices.Contains(Kinds(), k):
		return Fit{Why: fmt.Sprintf("there is no runner kind %q", k)}
	case !slices.Contains(SandboxKinds(), s):
		return Fit{Why: fmt.Sprintf("there is no kind of sandbox %q", s)}
	case !ok:
		f.Why = fmt.Sprintf("a runner of kind %s runs on another platform", k)
	}
	return f
}

// KindsOn returns the kinds of runners that can run on the sandbox, in the order of the documentation.
func KindsOn(s SandboxKind) (kinds []Kind) {
	for _, k := range Kinds() {
		if FitOf(k, s).OK {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// SandboxMatrix renders as text which runner kinds can run on which sandboxes, with the warnings. The text ends with a
// line feed.
func SandboxMatrix() string {
	return matrixText(SandboxKinds(), func(k Kind, s SandboxKind) (text, note string) {
		f := FitOf(k, s)
		switch {
		case !f.OK:
			return "no", ""
		case f.Why != "":
			return "yes", f.Why
		}
		return "yes", ""
	})
}
