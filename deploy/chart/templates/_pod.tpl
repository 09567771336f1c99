{{- /* What the pods of workers and of the test have in common. */}}

{{- define "holdfast.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "holdfast.temporal" -}}
{{ (.Values.temporal.devServer).enabled | default false | ternary "holdfast-temporal.holdfast-system.svc:7233" .Values.temporal.address }}
{{- end }}

{{- define "holdfast.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
{{- if .Values.temporal.codec.secret }}
# A key file must not be every user's: its mode is 0440, and its group this one.
fsGroup: 10001
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "holdfast.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "holdfast.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- range $kind, $secret := include "holdfast.secrets" . | fromYaml }}
{{- if $secret }}
- {name: temporal-{{ $kind }}, mountPath: /etc/holdfast/temporal/{{ $kind }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- /* Secrets are mounted as whole folders: a single file of one would never change. */}}
{{- define "holdfast.volumes" -}}
{{- $files := dict "ca" "{key: ca.crt, path: ca.crt}" "client" "{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}" "api-key" "{key: api-key, path: api-key}" "codec" "{key: keys.json, path: keys.json}" -}}
- {name: tmp, emptyDir: {}}
{{- range $kind, $secret := include "holdfast.secrets" . | fromYaml }}
{{- if $secret }}
- {name: temporal-{{ $kind }}, secret: {secretName: {{ $secret | quote }}{{ if eq $kind "codec" }}, defaultMode: 0440{{ end }}, items: [{{ get $files $kind }}]}}
{{- end }}
{{- end }}
{{- end }}

{{- define "holdfast.secrets" -}}
{{- with .Values.temporal }}
ca: {{ .tls.caSecret | quote }}
client: {{ .tls.clientSecret | quote }}
api-key: {{ .apiKeySecret | quote }}
codec: {{ .codec.secret | quote }}
{{- end }}
{{- end }}
