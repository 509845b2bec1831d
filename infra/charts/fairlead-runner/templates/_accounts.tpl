{{/* The service accounts of jobs. A role is the one of a job's operation. */}}

{{- define "runner.roles" -}}
{{- if .Values.jobs.accountPerRole }}{{ list "read-only" "deploy" "provision" "deprovision" | toJson }}{{ else }}{{ list | toJson }}{{ end -}}
{{- end -}}

{{/* The accounts with all permissions of jobs. */}}
{{- define "runner.changers" -}}
{{- $base := include "runner.jobsAccount" . -}}
{{- if .Values.jobs.accountPerRole }}{{ list (printf "%s-deploy" $base) (printf "%s-provision" $base) (printf "%s-deprovision" $base) | toJson }}{{ else }}{{ list $base | toJson }}{{ end -}}
{{- end -}}

{{- define "runner.planAccount" -}}
{{- printf "%s-read-only" (include "runner.jobsAccount" .) -}}
{{- end -}}

{{/* The group with the permissions of an account per role. */}}
{{- define "runner.groupOf" -}}
{{- printf "%s%s" .root.Values.jobs.groupPrefix (trimPrefix (include "runner.jobsAccount" .root) .account) -}}
{{- end -}}

{{/* Whether the policy is installed. Without it, the account of plans gets no verb that changes something. */}}
{{- define "runner.policy" -}}
{{- if and .Values.jobs.accountPerRole .Values.jobs.planDryRun (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") }}true{{ end -}}
{{- end -}}

{{- define "runner.policyName" -}}
{{- printf "%s-%s-plans" .Release.Namespace (include "runner.name" .) -}}
{{- end -}}

{{/*
The rules of the account of plans: what of the rules of the other accounts reads, and dry runs if the policy is
installed.
- No subresource: some, such as pods/exec and nodes/proxy, run programs by a request that reads.
- "*" in the core group is refused, because it contains those subresources.
- No dry run of what configures admission, because admission does not check these kinds.
*/}}
{{- define "runner.planRules" -}}
{{- $reads := list "get" "list" "watch" -}}
{{- $all := $reads -}}
{{- if include "runner.policy" .root }}{{ $all = concat $reads (list "create" "update" "patch" "delete" "deletecollection" "bind" "escalate") }}{{ end -}}
{{- $out := list -}}
{{- range $rule := .rules -}}
{{- if and (has "*" $rule.resources) (or (has "" $rule.apiGroups) (has "*" $rule.apiGroups)) }}
{{- fail (printf "%s: list the resources of the group %q: \"*\" contains subresources such as nodes/proxy, by which a plan could run programs. Or set jobs.accountPerRole to false." $.where (first $rule.apiGroups)) }}
{{- end -}}
{{- $may := $all -}}
{{- if or (has "*" $rule.apiGroups) (has "admissionregistration.k8s.io" $rule.apiGroups) }}{{ $may = $reads }}{{ end -}}
{{- $verbs := list -}}
{{- range $verb := $may }}{{ if or (has "*" $rule.verbs) (has $verb $rule.verbs) }}{{ $verbs = append $verbs $verb }}{{ end }}{{ end -}}
{{- $resources := list -}}
{{- range $rule.resources }}{{ if not (contains "/" .) }}{{ $resources = append $resources . }}{{ end }}{{ end -}}
{{- if and $verbs $resources }}{{ $out = append $out (merge (dict "resources" $resources "verbs" $verbs) $rule) }}{{ end -}}
{{- end -}}
{{- if $out }}{{ toYaml $out }}{{ end -}}
{{- end -}}

{{/* What a plan may read, and dry-run, where the other accounts may do everything. */}}
{{- define "runner.readable" -}}
- apiGroups: [""]
  resources: [configmaps, endpoints, limitranges, namespaces, nodes, persistentvolumeclaims, persistentvolumes, pods, podtemplates, replicationcontrollers, resourcequotas, secrets, serviceaccounts, services]
  verbs: ["*"]
- apiGroups: [apiextensions.k8s.io, apiregistration.k8s.io, apps, autoscaling, batch, coordination.k8s.io, discovery.k8s.io, flowcontrol.apiserver.k8s.io, networking.k8s.io, node.k8s.io, policy, rbac.authorization.k8s.io, resource.k8s.io, scheduling.k8s.io, storage.k8s.io]
  resources: [apiservices, clusterrolebindings, clusterroles, controllerrevisions, cronjobs, csidrivers, csistoragecapacities, customresourcedefinitions, daemonsets, deployments, deviceclasses, endpointslices, flowschemas, horizontalpodautoscalers, ingressclasses, ingresses, ipaddresses, jobs, leases, networkpolicies, poddisruptionbudgets, priorityclasses, prioritylevelconfigurations, replicasets, resourceclaims, resourceclaimtemplates, rolebindings, roles, runtimeclasses, servicecidrs, statefulsets, storageclasses, volumeattributesclasses]
  verbs: ["*"]
- apiGroups: [admissionregistration.k8s.io]
  resources: ["*"]
  verbs: [get, list, watch]
{{- with .Values.jobs.customGroups }}
- apiGroups:
    {{- toYaml . | nindent 4 }}
  resources: ["*"]
  verbs: ["*"]
{{- end }}
{{- end -}}

{{/* The permissions of a state storage of type kubernetes. */}}
{{- define "runner.stateRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, create, update, delete]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
{{- end -}}

{{/*
A Role, or a ClusterRole without a namespace, with its binding. name: at the end of its name, which begins with the
release's namespace where several releases may have one. namespace: of the Role. rules: as YAML. accounts: names of
service accounts of jobs.
*/}}
{{- define "runner.granted" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") -}}
{{- $name := printf "%s-%s" (include "runner.name" .root) .name -}}
{{- if ne .namespace (include "runner.jobsNamespace" .root) }}{{ $name = printf "%s-%s" .root.Release.Namespace $name }}{{ end -}}
{{- if .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "runner.labels" .root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
{{ include "runner.binding" (dict "root" .root "kind" $kind "name" $name "role" $name "namespace" .namespace "accounts" .accounts) }}
{{- end }}
{{- end -}}

{{/* The binding of a role to service accounts of jobs. */}}
{{- define "runner.binding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "runner.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .role }}
subjects:
  {{- range .accounts }}
  - kind: ServiceAccount
    name: {{ . }}
    namespace: {{ include "runner.jobsNamespace" $.root }}
  {{- end }}
  {{- if .root.Values.jobs.groupPrefix }}
  {{- range .accounts }}
  - kind: Group
    apiGroup: rbac.authorization.k8s.io
    name: {{ include "runner.groupOf" (dict "root" $.root "account" .) }}
  {{- end }}
  {{- end }}
{{- end -}}
