# Completion of penstock for fish: commands, options and values, from penstock itself.
function __penstock_complete
    _PENSTOCK_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] \
        _TYPER_COMPLETE_ARGS=(commandline -cp) penstock 2>/dev/null
end
complete --command penstock --no-files --arguments "(__penstock_complete get-args)" \
    --condition "__penstock_complete is-args"
