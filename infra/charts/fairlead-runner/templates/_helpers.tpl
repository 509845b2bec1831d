{{- define "runner.name" -}}
{{- if contains "fairlead-runner" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-fairlead-runner" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end -}}

{{- define "runner.selector" -}}
app.kubernetes.io/name: fairlead-runner
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "runner.labels" -}}
{{ include "runner.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "runner.agentAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "runner.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "runner.jobsAccount" -}}
{{- .Values.jobs.serviceAccount.name | default (ternary (printf "%s-jobs" (include "runner.name" .)) "default" .Values.jobs.serviceAccount.create) -}}
{{- end -}}

{{- define "runner.jobsNamespace" -}}
{{- .Values.jobs.namespace | default .Release.Namespace -}}
{{- end -}}

{{/* The seed of the install keys. A release that reuses the values of an earlier chart has none. */}}
{{- define "runner.makesSeed" -}}
{{- $key := .Values.installKey | default dict -}}
{{- if and $key.create (not $key.existingSecret) }}true{{ end -}}
{{- end -}}

{{- define "runner.seedSecret" -}}
{{- $key := .Values.installKey | default dict -}}
{{- if $key.existingSecret }}{{ $key.existingSecret }}{{ else if $key.create }}{{ include "runner.name" . }}-install-key{{ end -}}
{{- end -}}

{{- define "runner.seedKey" -}}
{{- if eq (include "runner.makesSeed" .) "true" }}seed{{ else }}{{ .Values.installKey.secretKey }}{{ end -}}
{{- end -}}

{{- define "runner.image" -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- end -}}

{{- define "runner.jobsImage" -}}
{{- if .Values.jobs.image.digest }}{{ printf "%s@%s" (.Values.jobs.image.repository | default .Values.image.repository) .Values.jobs.image.digest }}{{ else }}{{ include "runner.image" . }}{{ end -}}
{{- end -}}

{{/* The annotations that give a service account a cloud identity, merged with those of the values. */}}
{{- define "runner.annotations" -}}
{{- $out := dict -}}
{{- with .aws }}{{ $_ := set $out "eks.amazonaws.com/role-arn" . }}{{ end -}}
{{- with .azure }}{{ $_ := set $out "azure.workload.identity/client-id" . }}{{ end -}}
{{- with .gcp }}{{ $_ := set $out "iam.gke.io/gcp-service-account" . }}{{ end -}}
{{- with merge (deepCopy .given) $out -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* One variable; without a value there is none, so that its default applies. */}}
{{- define "runner.variable" -}}
{{- if .value }}
- name: {{ .name }}
  value: {{ .value | toString | quote }}
{{- end }}
{{- end -}}
