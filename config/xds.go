package config

import (
	"path/filepath"
	"reflect"
	"strings"

	"tributary/sources/xds"
)

// XDSSettings are the settings of xds sources. What is zero has the default of package xds.
type XDSSettings struct {
	Mode            string            `json:"mode,omitempty" jsonschema:"Variant of the protocol (xds): delta, sotw, or auto, which tries delta first. Default: auto."`
	TokenFile       string            `json:"tokenFile,omitempty" jsonschema:"File with a token, read anew each time it is used (xds, where it needs tlsSettings; consul, consul-kv)."`
	NodeID          string            `json:"nodeID,omitempty" jsonschema:"Id that the source introduces itself by (xds). Default: made of the host name."`
	NodeMetadata    map[string]string `json:"nodeMetadata,omitempty" jsonschema:"Metadata that the source adds to its node (xds)."`
	Revision        string            `json:"revision,omitempty" jsonschema:"Leaves out what is labelled istio.io/rev for another revision (xds)."`
	Locality        string            `json:"locality,omitempty" jsonschema:"Where the source runs, as region/zone/subzone (xds)."`
	CacheDir        string            `json:"cacheDir,omitempty" jsonschema:"Directory that keeps what was last received, so that only differences are read after a restart (xds). One for each source."`
	MaxMessageBytes int64             `json:"maxMessageBytes,omitempty" jsonschema:"How large one response may be, in bytes (xds). Default: 536870912."`
}

// XDS returns the settings as package xds takes them.
func (s *Source) XDS() xds.Settings {
	settings := xds.Settings{
		Mode: s.Mode, SubscribedResources: s.SubscribedResources, TokenFile: s.TokenFile,
		NodeID: s.NodeID, NodeMetadata: s.NodeMetadata, Revision: s.Revision, Locality: s.Locality,
		CacheDir: s.CacheDir, MaxMessageBytes: s.MaxMessageBytes,
	}
	settings.TLS = s.tls()
	return settings
}

// tls returns the settings of TLS as the sources take them, or nil.
func (s *Source) tls() *xds.TLS {
	t := s.TLSSettings
	if t == nil {
		return nil
	}
	return &xds.TLS{
		Mode: t.Mode, ClientCertificate: t.ClientCertificate, PrivateKey: t.PrivateKey, CACertificates: t.CACertificates,
		SubjectAltNames: t.SubjectAltNames, SNI: t.SNI, InsecureSkipVerify: t.InsecureSkipVerify,
	}
}

// checkXDS notes what is wrong with an xds source. The names of files in it are taken from dir.
func (d *decoder) checkXDS(s *Source, key, dir string) {
	d.refuse(s.FileSettings, key, xds.Scheme)
	d.refuse(s.ConsulSettings, key, xds.Scheme)
	filesUnder(dir, s)
	fileUnder(dir, &s.CacheDir)
	if _, err := xds.New(s.Address, s.XDS()); err != nil {
		at, message, _ := strings.Cut(err.Error(), ": ") // the error begins with the key at fault
		d.problem(key+"."+at, "%s", message)
		return
	}
	if s.Name == "" {
		s.Name = nameOf(s.Address)
	}
}

// filesUnder makes the names of files for the connection ones that are relative to dir.
func filesUnder(dir string, s *Source) {
	if t := s.TLSSettings; t != nil {
		for _, file := range []*string{&t.ClientCertificate, &t.PrivateKey, &t.CACertificates} {
			fileUnder(dir, file)
		}
	}
	fileUnder(dir, &s.TokenFile)
}

// fileUnder makes the name of a file that is relative one that is relative to dir. PEM in its place stays.
func fileUnder(dir string, file *string) {
	if *file != "" && !filepath.IsAbs(*file) && !strings.Contains(*file, "-----BEGIN ") {
		*file = filepath.Join(dir, *file)
	}
}

// refuse notes those of settings that are set though they are not for addresses of scheme.
func (d *decoder) refuse(settings any, key, scheme string) {
	v := reflect.ValueOf(settings)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			d.problem(key+"."+name, "not for %s addresses", scheme)
		}
	}
}
