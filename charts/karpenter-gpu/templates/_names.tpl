{{/*
Names, labels and selectors are those of Karpenter's own chart, to the letter: a selector of a
Deployment cannot change, and whoever finds Karpenter by its labels goes on finding it.
*/}}
{{- define "karpenter-gpu.name" -}}
{{- .Values.nameOverride | default "karpenter" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's own name where it speaks of karpenter already. */}}
{{- define "karpenter-gpu.fullname" -}}
{{- $name := .Values.nameOverride | default "karpenter" -}}
{{- $derived := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $derived | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "karpenter-gpu.selector" -}}
app.kubernetes.io/name: {{ include "karpenter-gpu.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "karpenter-gpu.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "karpenter-gpu.selector" . }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Metadata of one object. Takes a list: root, name, namespace or "", labels of its own, annotations
of its own.
*/}}
{{- define "karpenter-gpu.metadata" -}}
{{- $root := index . 0 -}}
{{- include "karpenter-gpu.check" $root -}}
name: {{ index . 1 }}
{{- with index . 2 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "karpenter-gpu.labels" $root | nindent 2 }}
  {{- with index . 3 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (index . 4) ($root.Values.additionalAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "karpenter-gpu.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "karpenter-gpu.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* What bindings bind to. */}}
{{- define "karpenter-gpu.subjects" -}}
- kind: ServiceAccount
  name: {{ include "karpenter-gpu.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- define "karpenter-gpu.containerName" -}}
{{- .Values.controller.containerName | default "controller" -}}
{{- end -}}

{{- define "karpenter-gpu.image" -}}
{{- with .Values.controller.image -}}
{{- .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/*
helm upgrade --reuse-values keeps the defaults of the chart before, the image among them, and
knows none of ours: it would leave stock Karpenter running under our name.
*/}}
{{- define "karpenter-gpu.check" -}}
{{- if or (not .Values.gpu) (eq .Values.controller.image.repository "public.ecr.aws/karpenter/controller") -}}
{{- fail "controller.image.repository is that of stock Karpenter, or gpu is missing: the values are those of the chart before. Upgrade with --reset-then-reuse-values in place of --reuse-values, which keeps what you set yourself" -}}
{{- end -}}
{{- end -}}

{{/* Gives a list of terms or constraints the controller's selector where they have none. */}}
{{- define "karpenter-gpu.withSelector" -}}
{{- $selector := dict "matchLabels" (include "karpenter-gpu.selector" (index . 0) | fromYaml) -}}
{{- range index . 1 -}}
{{- if not (hasKey . "labelSelector") -}}
{{- $_ := set . "labelSelector" $selector -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "karpenter-gpu.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- $terms := list -}}
{{- range list "podAffinity" "podAntiAffinity" -}}
{{- with index $affinity . -}}
{{- $terms = concat $terms (.requiredDuringSchedulingIgnoredDuringExecution | default list) -}}
{{- range .preferredDuringSchedulingIgnoredDuringExecution -}}
{{- $terms = append $terms .podAffinityTerm -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "karpenter-gpu.withSelector" (list . $terms) -}}
{{- toYaml $affinity -}}
{{- end -}}

{{- define "karpenter-gpu.topologySpread" -}}
{{- $constraints := deepCopy .Values.topologySpreadConstraints -}}
{{- include "karpenter-gpu.withSelector" (list . $constraints) -}}
{{- toYaml $constraints -}}
{{- end -}}
