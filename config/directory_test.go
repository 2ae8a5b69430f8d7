package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tributary/config"
)

// A directory is a configuration: its *.yaml files, in the order of their names.
func TestLoadReadsADirectory(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	_, err := config.Load(dir)
	require.EqualError(t, err, "read configuration: the directory "+dir+" has no *.yaml file")

	put("20-shop.yaml", "configSources:\n- address: fs://./shop\n- {name: billing, address: 'fs:///billing'}\n")
	put("10-base.yaml", "listen: {admin: '127.0.0.1:1'}\nstateDir: state\nconfigSources: [{name: base, address: 'fs:///base', precedence: "+
		"1}]\n")
	put("30-empty.yaml", "# nothing\n")
	put("notes.txt", "not: [read")
	put(".hidden.yaml", "not: [read")
	c, err := config.Load(dir)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:1", c.Listen.Admin)
	require.Equal(t, filepath.Join(dir, "state"), c.StateDir, "relative paths start at the directory")
	var addresses []string
	for _, s := range c.ConfigSources {
		addresses = append(addresses, s.Name+" "+s.Address)
	}
	require.Equal(t, []string{"base fs:///base", "shop fs://" + dir + "/shop", "billing fs:///billing"}, addresses)
	require.Equal(t, dir+"/20-shop.yaml:2:12: configSources[1].address", c.At("configSources[1].address"))
	l, err := config.LoadListen(dir)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:1", l.Admin)

	// An error names file and line, whichever file it is.
	put("40-wrong.yaml", "listen: {xds: '127.0.0.1:2'}\nconfigSources:\n- {name: base, address: 'fs:///x', presedence: 2}\nstateDirr: x\n")
	_, err = config.Load(dir)
	require.ErrorContains(t, err, dir+"/40-wrong.yaml:1:1: listen: given twice, first in "+dir+
		"/10-base.yaml:1:9; only configSources may stand in several files\n")
	require.ErrorContains(t, err, dir+"/40-wrong.yaml:3:36: configSources[3].presedence: unknown key")
	require.ErrorContains(t, err, dir+"/40-wrong.yaml:4:1: stateDirr: unknown key")
	require.ErrorContains(t, err, dir+"/40-wrong.yaml:3:10: configSources[3].name: \"base\" is also the name of configSources[0]")
}

// A directory that names no source is at fault as a whole.
func TestDirectoryWithoutSource_Refused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(map[string]string{"a.yaml": "compression: none\n"}[name]), 0o600))
	}
	_, err := config.Load(dir)
	require.ErrorContains(t, err, dir+": configSources: at least one source is needed")
}

// Files of a directory that are no regular files, and links that lead out of it.
func TestDirectoryWithOddFiles(t *testing.T) {
	load := func(link string) error {
		dir := t.TempDir()
		require.NoError(t, os.Symlink(link, filepath.Join(dir, "a.yaml")))
		_, err := config.Load(dir)
		require.ErrorContains(t, err, dir+"/a.yaml")
		return err
	}
	outside := t.TempDir()
	pipe := filepath.Join(outside, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	for _, target := range []string{pipe, "/dev/zero", "/dev/null", outside} {
		require.ErrorContains(t, load(target), "is not a regular file")
	}
	require.ErrorIs(t, load(filepath.Join(outside, "missing")), os.ErrNotExist)

	for _, text := range []string{
		"root:s3cr3t:0:0", "s3cr3t: [", "s3cr3t: x", "configSources: s3cr3t", "configSources: [{name: s3cr3t/, address: 'fs:///x'}]", "\ts3cr3t",
	} {
		file := filepath.Join(outside, "file")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		err := load(file)
		require.NotContains(t, err.Error(), "s3cr3t", text)
		require.ErrorContains(t, err, "the reason is not shown, since this is a link out of the directory: `tributary validate "+file+"`")
	}
	large := filepath.Join(outside, "large")
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, 17<<20))
	require.ErrorContains(t, load(large), "has more than 16 MiB")
	_, err := config.Load("/dev/zero")
	require.EqualError(t, err, "read configuration: /dev/zero has more than 16 MiB")

	// Links to valid files count, wherever they lead.
	dir, file := t.TempDir(), filepath.Join(outside, "valid")
	require.NoError(t, os.WriteFile(file, []byte("configSources: [{address: 'fs:///rules'}]"), 0o600))
	require.NoError(t, os.Symlink(file, filepath.Join(dir, "a.yaml")))
	_, err = config.Load(dir)
	require.NoError(t, err)
}
