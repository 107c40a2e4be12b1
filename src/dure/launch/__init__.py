"""The processes of one script: started, watched, ended and started again (`dure run`)."""
