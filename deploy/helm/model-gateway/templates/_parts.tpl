{{- define "gateway.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "gateway.labels" -}}
app.kubernetes.io/name: model-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gateway.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "gateway.container" -}}
image: {{ include "gateway.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  {{- range .Values.secretRefs }}
  - secretRef: {name: {{ . | quote }}}
  {{- end }}
env:
  {{- range $name, $value := .Values.environment }}
  - {name: {{ $name | quote }}, value: {{ $value | quote }}}
  {{- end }}
  - {name: WEB_WORKERS, value: {{ .Values.web.workers | quote }}}
  {{- if .Values.catalog.volume }}
  - {name: CATALOG_DIR, value: /etc/model-gateway/catalog}
  {{- end }}
volumeMounts:
  - {name: home, mountPath: /var/lib/model-gateway}
  - {name: metrics, mountPath: /run/metrics}
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.catalog.volume }}
  - {name: catalog, mountPath: /etc/model-gateway/catalog, readOnly: true}
  {{- end }}
{{- end }}

{{- define "gateway.emptyFolders" -}}
- {name: metrics, emptyDir: {medium: Memory, sizeLimit: 256Mi}}
- {name: tmp, emptyDir: {}}
{{- with .Values.catalog.volume }}
- name: catalog
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
